"""What a broken NBD connection had in flight never lands after what its client wrote since on another one."""
from harness import *
from nbd_clients import *

OLD, NEW, OTHER = b"o" * 4096, b"n" * 4096, b"t" * 4096


def done(h, cookie):
    h.poll(10)
    return h.aio_command_completed(cookie)


with Lab() as lab:
    gate = lab.path("gate")
    server = lab.server([{
        "name": "vol", "allow": [{"session": "host-a", "access": "rw"}],
        # The first write waits at the gate, later ones pass.
        "storage": {"kind": "delay", "of": {"kind": "memory", "size": "1MiB"},
                    "gate": gate, "gate_count": 1}}])
    client = lab.client(server, {"vol": {}})
    device = lambda: client.status()["devices"][0]

    for _ in range(3):
        live = connected(lab, "vol")
        gone = connected(lab, "vol")
        with open(gate, "w"):
            pass
        gone.aio_pwrite(OLD, 0)
        wait_until("it is under way", lambda: gone.poll(0) or server.status()["sessions"][0]["in_flight"] == 1)
        del gone  # closes the socket, without a word
        back = connected(lab, "vol")
        newer = back.aio_pwrite(NEW, 0)
        wait_until("it waits, or is done already", lambda: done(back, newer) or device()["waiting_for_these"] == 1)
        check(device()["left_behind"] == 1, "the old one is known")
        check("1 changes of clients that have gone" in client.ctl("status").stdout, "shown to people")
        # Others go on, and so does the same client elsewhere.
        live.pwrite(OTHER, 8192)
        back.pwrite(OTHER, 4096)
        os.unlink(gate)
        wait_until("the newer one is done", lambda: done(back, newer))
        wait_until("nothing is left", lambda: server.status()["sessions"][0]["in_flight"] == 0)
        check(live.pread(4096, 0) == NEW, "the newer one stands")
        check(device()["left_behind"] == 0 and device()["waiting_for_these"] == 0, "it is over")
