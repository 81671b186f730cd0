"""kill -9 of a server loses what it kept in memory: the next flush says so, once; what is in files is not lost."""
import errno

from harness import *
from nbd_clients import *


def device(client, name):
    return next(d for d in client.status()["devices"] if d["name"] == name)


def restart(server, client):
    server.kill()
    # Seen as gone first: "open" must be said about the new one.
    wait_until("the client has noticed", lambda: device(client, "memory")["state"] != "open")
    server.start()
    wait_until("the devices are open again", lambda: all(
        d["state"] == "open" for d in client.status()["devices"]))


with Lab() as lab:
    allow = [{"session": "host-a", "access": "rw"}]
    memory = {"kind": "memory", "size": "1MiB"}
    gate = lab.path("gate")
    server = lab.server([
        {"name": "memory", "storage": memory, "allow": allow},
        {"name": "late", "storage": {"kind": "delay", "of": memory, "write": "1ms"}, "allow": allow},
        {"name": "flushed", "storage": memory, "allow": allow},
        # A piece is 1 GiB of memory at most; the first waits at the gate.
        {"name": "pieces", "allow": allow, "storage": {
            "kind": "delay", "of": {"kind": "memory", "size": "2GiB"}, "gate": gate, "gate_count": 1}},
        export("file", lab.path("file.img"), "1MiB"),
        export("direct", lab.path("direct.img"), "1MiB", io="direct"),
    ])
    names = ("memory", "late", "flushed", "file", "direct")
    # One connection: below, what is sent later comes later.
    client = lab.client(server, {name: {} for name in (*names, "pieces")}, session_options={"connections": 1})
    handles = {name: connected(lab, name) for name in (*names, "pieces")}
    for name in names:
        handles[name].pwrite(b"x" * 4096, 0)
    handles["flushed"].flush()
    restart(server, client)

    for name in ("memory", "late"):
        h = handles[name]
        check(h.pread(4096, 0) == bytes(4096), f"{name}: the data is gone, and reads go on")
        check(error_of(h.flush) == errno.EIO, f"{name}: the next flush fails")
        check(error_of(h.flush) == 0, f"{name}: and only that one")
        status = device(client, name)
        check((status["lost_caches"], status["lost_writes"]) == (1, 1), f"{name}: counted")
        check(any(f"/{name}:" in line and "acknowledged writes are lost" in line
                  for line in client.log().splitlines()), f"{name}: one line tells it")
    check("memory: lost 1 acknowledged writes" in client.ctl("status").stdout, "shown to people")
    for name in ("flushed", "file", "direct"):
        check(error_of(handles[name].flush) == 0, f"{name}: lost nothing")
        check(device(client, name)["lost_caches"] == 0, f"{name}: counts nothing")
    for name in ("file", "direct"):
        check(handles[name].pread(4096, 0) == b"x" * 4096, f"{name}: the data is there")

    # Again, over a flush that is submitted while nobody is there.
    def answer_of(h, cookie):
        """0 or the errno that it ends with."""
        def ended():
            try:
                h.poll(100)
                return [0] if h.aio_command_completed(cookie) else None
            except nbd.Error as error:
                return [error.errnum]
        return wait_until("it is answered", ended)[0]

    h = handles["memory"]
    h.pwrite(b"y" * 4096, 4096)
    server.kill()
    wait_until("the client has noticed", lambda: device(client, "memory")["state"] != "open")
    cookie = h.aio_flush()
    server.start()
    check(answer_of(h, cookie) == errno.EIO, "the flush that waited fails")
    check(error_of(h.flush) == 0, "and has told it")

    # What has FUA answers for itself: it tells nobody of what else was lost.
    h = handles["memory"]
    h.pwrite(b"y" * 4096, 4096)
    restart(server, client)
    check(error_of(h.zero, 4096, 8192, nbd.CMD_FLAG_FUA) == 0, "zeroes with FUA are not lost")
    check(error_of(h.trim, 4096, 8192, nbd.CMD_FLAG_FUA) == 0, "nor is a trim")
    check(error_of(h.flush) == errno.EIO, "the write before is, and the first flush says so")
    check(error_of(h.flush) == 0, "once")

    # In two pieces: one is acknowledged before the end and one after it, and a flush tells of the loss in between.
    h = handles["pieces"]

    def zero_over_a_loss(flags):
        with open(gate, "w"):
            zeroes = h.aio_zero(2 << 30, 0, flags=flags)
            h.pwrite(b"y" * 4096, 0)
            wait_until("the second piece is done", lambda: server.status()["sessions"][0]["in_flight"] == 1)
        server.kill()
        wait_until("the client has noticed", lambda: device(client, "pieces")["state"] != "open")
        flush = h.aio_flush()
        os.unlink(gate)
        server.start()
        check(answer_of(h, flush) == errno.EIO, "the flush that waited fails")
        return answer_of(h, zeroes)

    check(zero_over_a_loss(nbd.CMD_FLAG_FUA) == errno.EIO, "with FUA the request that lost a piece fails")
    check(error_of(h.flush) == 0, "both have told it")
    check(zero_over_a_loss(0) == 0, "without FUA it is acknowledged")
    check(error_of(h.flush) == errno.EIO, "and the next flush covers what it has lost, whatever one before has told")
    check(error_of(h.flush) == 0, "that has told it")
