"""A thousand NBD clients on one socket each read their own; beyond the limit a client takes the place of one that chooses nothing."""
import resource
import socket
import struct

from harness import *

CLIENTS = 1000
LIMIT = 4096  # NbdListenerOptions::connections_max
BLOCK = 4096

files = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
if files[1] < LIMIT + 100:
    skip(f"needs {LIMIT + 100} open files")


def connected(path):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)  # waits for room in the queue, which a socket with a timeout does not
    client.settimeout(60)
    return client


def exactly(client, count):
    data = b""
    while len(data) < count:
        more = client.recv(count - len(data))
        check(more, "the connection was closed")
        data += more
    return data


def served(path, name):
    """A client that is ready to send requests."""
    client = connected(path)
    exactly(client, 18)
    wanted = struct.pack(">I", len(name)) + name.encode() + struct.pack(">H", 0)
    client.sendall(struct.pack(">I", 3) + struct.pack(">QII", 0x49484156454F5054, 7, len(wanted)) + wanted)
    while True:
        _, _, kind, length = struct.unpack(">QIII", exactly(client, 20))
        exactly(client, length)
        check(kind < 1 << 31, f"the device is refused: {kind:#x}")
        if kind == 1:
            return client


def ask(client, number):
    client.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, number, number * BLOCK, BLOCK))


def answer(client, number):
    magic, error, handle = struct.unpack(">IIQ", exactly(client, 16))
    check((magic, error, handle) == (0x67446698, 0, number), f"client {number}: {magic:#x}, error {error}, {handle}")
    check(exactly(client, BLOCK) == struct.pack("<Q", number) * (BLOCK // 8), f"client {number} got another's block")


with Lab() as lab:
    image = lab.path("vol1.img")
    with open(image, "wb") as file:
        for number in range(CLIENTS):
            file.write(struct.pack("<Q", number) * (BLOCK // 8))
    server = lab.server([export("vol1", image)])
    client = lab.client(server, {"vol1": {}})
    path = lab.socket("client", "vol1")
    clients = [served(path, "vol1") for _ in range(CLIENTS)]
    for rounds in range(3):  # all at once, then each for itself
        for number, each in enumerate(clients):
            ask(each, number)
        for number, each in enumerate(clients):
            answer(each, number)
    for number, each in enumerate(clients):
        ask(each, number)
        answer(each, number)

    waiting = [connected(path) for _ in range(LIMIT - CLIENTS)]
    for each in waiting:
        exactly(each, 18)
    time.sleep(1.1)  # from when the last one was greeted
    late = served(path, "vol1")
    ask(late, 7)
    answer(late, 7)
    check(waiting[0].recv(1) == b"", "the first that chose nothing has kept its place")
    check("makes room for another client: too many connections" in client.log(), "the log does not tell of it")
    for each in [late] + waiting + clients:
        each.close()
    client.stop()
    server.stop()
