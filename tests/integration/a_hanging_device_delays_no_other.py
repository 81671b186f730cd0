"""While one device waits for storage that never answers, others are flushed, unmapped and mapped again, on its address too, and come back over a lost path."""
from harness import *

import re
import struct

BLOCK = b"x" * 4096


class Client:
    """NBD by hand: this one asks and does not wait for the answer."""

    def __init__(self, port, device):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.receive(18)
        name = device.encode()
        self.socket.sendall(struct.pack(f">I8sII{len(name)}s", 3, b"IHAVEOPT", 1, len(name), name))
        self.receive(10)

    def receive(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            check(part, "the connection goes on")
            data += part
        return data

    def write(self, data=BLOCK):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 1, 7, 0, len(data)) + data)

    def answer(self):
        magic, error, cookie = struct.unpack(">IIQ", self.receive(16))
        check((magic, error, cookie) == (0x67446698, 0, 7), "it has succeeded")


def refused(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S):
            return False
    except ConnectionError:
        return True


with Lab() as lab:
    gate = lab.path("gate")
    allow = [{"session": "host-a", "access": "rw"}]
    memory = {"kind": "memory", "size": "1MiB"}
    server = lab.server([
        {"name": "slow", "allow": allow, "storage": {"kind": "delay", "of": memory, "gate": gate}},
        {"name": "other", "allow": allow, "storage": memory},
        {"name": "third", "allow": allow, "storage": memory},
    ])
    client = lab.client(server, {})
    common, own = free_port(), free_port()

    def known(name):
        return next(one for one in client.status()["devices"] if one["name"] == name)

    def opened(name):
        wait_until(f"{name} is open", lambda: known(name)["state"] == "open")

    def mapped(name, port):
        client.ctl("map", name, "--session", "host-a", "--nbd", f"tcp:127.0.0.1:{port}")

    def serve(name, port):
        mapped(name, port)
        opened(name)

    def written(device, port):
        client_of = Client(port, device)
        client_of.write()
        client_of.answer()
        client_of.socket.close()
        wait_until("it has gone", lambda: all(
            one["connections"] == 0 for one in client.status()["devices"] if one["name"] == device))

    flushes = lambda: server.status()["sessions"][0]["others"]
    reasons = lambda: {one["name"]: one["reason"] for one in server.status()["exports"]}

    # Of three devices one hangs; it shares its address with another.
    for device, port in (("slow", common), ("other", common), ("third", own)):
        serve(device, port)
    with open(gate, "w"):
        pass
    # By itself it would take all requests that the session may have outstanding.
    hanging = [Client(common, "slow"), Client(common, "slow")]
    for one in hanging * 300:
        one.write(BLOCK[:512])
    wait_until("they are under way", lambda: server.status()["sessions"][0]["in_flight"] > 200)

    def others_come_back():
        """What hangs at the server is of a path that is lost; the others come back without its end."""
        for _ in range(2):
            client.ctl("paths", "reconnect", "host-a", f"127.0.0.1:{server.port}")
            for name, port in (("other", common), ("third", own)):
                opened(name)
                written(name, port)

    others_come_back()
    check(len(server.status()["sessions"][0]["paths"]) == 2, "the old one is still there, for what hangs")
    flushed_before = flushes()

    unmap = subprocess.Popen([os.path.join(BUILD, "rnbdctl", "rnbdctl"), "--socket", client.control,
                              "--timeout", "600s", "unmap", "slow", "--force"])
    wait_until("it is being unmapped", lambda: "slow: stopping" in client.log())

    written("other", common)
    client.ctl("unmap", "other")
    check(flushes() == flushed_before + 1, "the one beside it was flushed")
    check(refused(common), "nobody is left waiting at an address that nobody serves")
    serve("other", common)
    written("other", common)
    written("third", own)
    client.ctl("unmap", "third")
    check(flushes() == flushed_before + 2, "the one elsewhere was flushed")
    serve("third", own)

    check(unmap.poll() is None, "the first is still on its way")
    # Its storage does not know that anything is wrong, as that of a disk that hangs.
    wait_until("its export says that nothing ends", lambda: re.fullmatch(
        r".*: none of \d+ requests under way has ended for \d+ s", reasons()["slow"]))
    wait_until("so does the log", lambda: re.search(r"slow: requests wait: .*: none of \d+ requests", server.log()))
    check(reasons()["other"] == reasons()["third"] == "", "the others have nothing to say")
    # What it had asked is given up when its session has no path. The others come back without the end of that, too; who
    # uses the first again waits for it.
    wait_until("it is cut off", lambda: "slow: does not end in time" in client.log())
    others_come_back()
    check(unmap.wait(timeout=PATIENCE_S) == 0, "it is unmapped")
    mapped("slow", common)
    wait_until("it is not used again yet", lambda: "has not finished with requests" in known("slow")["reason"])
    written("other", common)
    check(known("slow")["state"] == "opening", known("slow"))
    os.unlink(gate)
    wait_until("the log says that it is over", lambda: "slow: requests go on" in server.log())
    check(reasons()["slow"] == "", "nor has the first")
    opened("slow")
    for name in ("other", "third"):
        check(f"{name}: does not end in time" not in client.log(), "only the first was given up")
    written("slow", common)
    check(client.stop() == 0, "the daemon ends")
