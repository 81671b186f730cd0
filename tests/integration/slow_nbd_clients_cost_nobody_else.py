"""NBD clients that take no answers, or have many requests, keep nobody else from a device: neither for ever nor until they are cut off."""
import importlib.util
import socket
import struct

from harness import *

if not importlib.util.find_spec("nbd"):
    skip("python3-libnbd is not installed")
need("fio")
import nbd

MIB = 1 << 20


def exactly(client, count):
    data = b""
    while len(data) < count:
        more = client.recv(count - len(data))
        check(more, "the connection was closed")
        data += more
    return data


def takes_no_answers(path, name):
    """A client that has asked for more than its socket holds, and reads nothing of it."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    exactly(client, 18)
    wanted = struct.pack(">I", len(name)) + name.encode() + struct.pack(">H", 0)
    client.sendall(struct.pack(">I", 3) + struct.pack(">QII", 0x49484156454F5054, 7, len(wanted)) + wanted)
    kind = 0
    while kind != 1:
        _, _, kind, length = struct.unpack(">QIII", exactly(client, 20))
        exactly(client, length)
        check(kind < 1 << 31, f"the device is refused: {kind:#x}")
    for number in range(100):
        client.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, number, 0, MIB))
    return client


def connected(lab, device):
    h = nbd.NBD()
    h.connect_uri(lab.uri(device))
    return h


with Lab() as lab:
    # With a second device in the session, a device may hold half of what there is.
    server = lab.server([export(name, lab.path(f"{name}.img"), "64MiB") for name in ("vol1", "vol2")])
    client = lab.client(server, {"vol1": {}, "vol2": {}})
    data = random.randbytes(4 * MIB)

    slow = takes_no_answers(lab.socket("client", "vol1"), "vol1")
    wait_until("its answers wait for it", lambda: "answered" in {
        request["stage"] for request in client.ask("explain", device="vol1")["requests"]})
    for device in ("vol1", "vol2"):
        h = connected(lab, device)
        h.pwrite(data, 0)
        check(h.pread(len(data), 0) == data, f"{device}: what was written")
        h.flush()
        h.shutdown()
    check("others wait" not in client.log() and "in time" not in client.log(), "and the slow one was not cut off for it")
    slow.close()

    busy = subprocess.Popen(["fio", "--name=busy", "--thread", "--ioengine=nbd", f"--uri={lab.uri('vol1')}", "--rw=randread",
                             "--bs=4k", "--iodepth=300", "--time_based", "--runtime=86400"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def reads():
            return next(d for d in client.status()["devices"] if d["name"] == "vol1")["reads"]
        wait_to_reach("fio reads", reads() + 10000, reads)
        h = connected(lab, "vol1")
        for size in (4096, MIB, 4 * MIB, 16 * MIB, 32 * MIB):
            h.pread(size, 0)
            check(busy.poll() is None, f"{size} bytes were read only when fio had ended")
    finally:
        busy.kill()
        busy.wait()
