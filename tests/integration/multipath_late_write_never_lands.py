"""A write that is stuck in the storage when its path is cut is not overtaken by its own retry.

The recipe that undoes acknowledged data behind multipaths that send a request again at once: a write
(B) waits in the storage, its path is cut, the client sends it again over the other path, where it
passes and is acknowledged; newer data (C) is written to the same block; then the first attempt goes
on, and B is what is found. Our retry waits for the first attempt. The same recipe run against a
server without admission (rnbd-server-planted, which sanitized builds have not) does find B: the test can see what it
looks for.
"""
from multipath_lab import *
from nbd_clients import *

BLOCK = 4096


def buffer(letter):
    return nbd.Buffer.from_bytearray(bytearray(letter * BLOCK))


def follow(program, environment, server_heartbeat):
    """Whether the retry was acknowledged while the first attempt was stuck, and what is found."""
    with MultipathLab() as lab:
        lab.network()
        gate = lab.path("gate")
        server = lab.start_server(
            [{"name": "vol1", "allow": [{"session": "host-a", "access": "rw"}],
              "storage": {"kind": "delay", "gate": gate, "gate_count": 1,
                          "of": {"kind": "path", "path": lab.path("vol1.img"), "size": "1MiB"}}}],
            program, environment, **server_heartbeat)
        lab.start_client(["vol1"], path_options={1: {"priority": "standby"}}, **STEADY)
        in_flight = lambda: sum(s["in_flight"] for s in server.status()["sessions"])
        h = connected(lab, "vol1")
        h.pwrite(b"A" * BLOCK, 0)

        open(gate, "w").close()
        written = h.aio_pwrite(buffer(b"B"), 0)
        wait_until("B is stuck in the storage", lambda: h.poll(10) is not None and in_flight() == 1)
        lab.net.break_link(0, "drop")
        lab.wait_for_loss(0)
        # Each of these passes, on the path that B was sent again on before them.
        for i in range(50):
            h.pwrite(bytes([i]) * BLOCK, BLOCK)
        is_acknowledged = lambda: h.poll(10) is not None and h.aio_command_completed(written)
        if environment:
            # Without admission it is done by then, if perhaps not answered yet.
            acknowledged = wait_until("B is acknowledged early", is_acknowledged)
        else:
            acknowledged = h.aio_command_completed(written)

        if acknowledged:
            h.pwrite(b"C" * BLOCK, 0)
        os.unlink(gate)
        wait_until("nothing is in the storage", lambda: in_flight() == 0)
        if not acknowledged:
            wait_until("B is acknowledged", is_acknowledged)
            h.pwrite(b"C" * BLOCK, 0)
        lab.net.heal(0)
        lab.wait_for_paths()
        found = bytes(h.pread(BLOCK, 0))
        check(bytes(h.pread(BLOCK, BLOCK)) == bytes([49]) * BLOCK, "the other block is wrong")
        lab.check_no_errors()
        check(len(set(found)) == 1, "a block of several letters")
        return acknowledged, chr(found[0])


# The server knows of the cut before the client, or hardly ever.
for heartbeat in ({"heartbeat": {"interval": "500ms", "timeout": "2s"}},
                  {"heartbeat": {"interval": "10s", "timeout": "60s"}}):
    result = follow("rnbd-server", [], heartbeat)
    check(result == (False, "C"), f"acknowledged early, found: {result}")
    if not os.path.exists(os.path.join(BUILD, "rnbd-server", "rnbd-server-planted")):
        print("with admission C is found; this build has no server without")
        continue
    result = follow("rnbd-server-planted", ["RNBD_PLANT=admission-off"], heartbeat)
    check(result == (True, "B"), f"without admission the recipe must work: {result}")
    print("with admission C is found, without it B")
