"""All permits at work over a link slower than the clients: answers overtake what is still being sent, no path is lost."""
import struct
import threading
from types import SimpleNamespace

from harness import *

WRITES = 5000  # by each of the clients; together they want more than all permits
CLIENTS = 3
BLOCK = 4096
VOLUME = 64 << 20

need_root()
need("unshare", "ip", "sysctl")
if len(sys.argv) == 1:
    if run("unshare", "-n", "true", ok=False).returncode != 0:
        skip("no network namespaces here")
    os.execvp("unshare", ["unshare", "-n", sys.executable, __file__, "inside"])
run("ip", "link", "set", "lo", "up")
# Most of what the client sends in one call waits for the socket.
run("sysctl", "-qw", "net.ipv4.tcp_wmem=4096 65536 262144")


def pump(source, target, pause):
    try:
        while data := source.recv(32768):
            target.sendall(data)
            if len(data) > 4096:
                time.sleep(pause)
    except OSError:
        pass
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def slow_link(port):
    """Slow towards the server; the port to connect to."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    listener.bind(("127.0.0.1", 0))
    listener.listen()

    def serve():
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", port))
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=pump, args=(near, far, 0.002), daemon=True).start()
            threading.Thread(target=pump, args=(far, near, 0), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def receive(nbd, size):
    data = b""
    while len(data) < size:
        part = nbd.recv(size - len(data))
        check(part, "the NBD connection has ended")
        data += part
    return data


def write_all(path, failures):
    try:
        nbd = socket.socket(socket.AF_UNIX)
        nbd.connect(path)
        receive(nbd, 18)
        name = b"ram"
        nbd.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, len(name)) + name)
        receive(nbd, 10)
        payload = bytes(BLOCK)

        def send():
            for i in range(WRITES):
                nbd.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 1, i, i * BLOCK % VOLUME, BLOCK)
                            + payload)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        for _ in range(WRITES):
            check(receive(nbd, 16)[4:8] == bytes(4), "a write has failed")
        sender.join()
    except (AssertionError, OSError) as error:
        failures.append(error)


with Lab() as lab:
    server = lab.server([{"name": "ram", "storage": {"kind": "memory", "size": VOLUME},
                          "allow": [{"session": "host-a", "access": "rw"}]}], heartbeat=PATIENT["heartbeat"])
    link = SimpleNamespace(port=slow_link(server.port))
    client = lab.client(link, {"ram": {}}, session_options=PATIENT)
    failures = []
    writers = [threading.Thread(target=write_all, args=(lab.socket("client", "ram"), failures))
               for _ in range(CLIENTS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    check(not failures, f"{failures}")
    check("cannot post" not in client.log(), "a queue was full")
    [path] = client.status()["sessions"][0]["paths"]
    check(path["reconnects"] == 0, f"the path was lost: {path}")
