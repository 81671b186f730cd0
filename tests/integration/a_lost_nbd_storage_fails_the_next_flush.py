"""Over an NBD server's export an orderly restart of rnbd-server fails no flush; what may have lost writes does, once,
for each client: a server that is lost, and one that cannot write back and says so to somebody."""
import errno
import subprocess

from harness import *
from nbd_clients import *

need("nbdkit")
if built_with("LIBNBD_FOUND") != "1":
    skip("the server was built without libnbd")


def finish(h, cookie):
    while not h.aio_command_completed(cookie):
        h.poll(-1)


def sockets():
    """Of the server, now."""
    found = run("find", f"/proc/{server.process.pid}/fd", "-lname", "socket:*", ok=False)
    return len(found.stdout.split())


def device():
    return client.status()["devices"][0]


def wait_for(word):
    wait_until(f"the device is {word}", lambda: device()["state"] == word)


def write_then(end):
    """What a flush says after a write, and such an end of rnbd-server."""
    h.pwrite(b"x" * 4096, 0)
    end()
    wait_for("reopening")
    server.start()
    wait_for("open")
    result = error_of(h.flush)
    check(error_of(h.flush) == 0, "no flush fails twice")
    return result


def fails(which, call, *arguments):
    """Whether a call does with EIO while the NBD server fails these."""
    with open(lab.path(which), "w"):
        pass
    try:
        return error_of(call, *arguments) == errno.EIO
    finally:
        os.unlink(lab.path(which))


def lines():
    return sum(len(daemon.log().splitlines()) for daemon in (server, client))


def all_hear_of_it(what, which, call, *arguments):
    """Of a failure of the NBD server that only one of its answers tells."""
    others = [connected(lab, "vol"), connected(lab, "vol", "second")]
    for one in (h, *others):
        one.pwrite(b"x" * 4096, 0)
    check(fails(which, call, *arguments), f"{what} fails")
    for one in others:
        check(error_of(one.flush) == errno.EIO, f"{what} has failed, and the flush of another client succeeds")
    error_of(h.flush)
    for one in (h, *others):
        check(error_of(one.flush) == 0, f"{what} has failed, and a flush of one client fails twice")


with Lab() as lab:
    socket = lab.path("nbdkit.sock")
    fail_if = lambda name: f"test ! -e {lab.path(name)} || {{ echo EIO disk >&2; exit 1; }}"
    words = ["nbdkit", "-f", "-U", socket, "eval", "get_size=echo 1048576", "can_write=exit 0", "can_flush=exit 0",
             "can_fua=echo native", "pread=head -c $3 /dev/zero",
             f"pwrite=cat >/dev/null; {fail_if('all-failing')}; case $5 in *fua*) {fail_if('failing')};; esac",
             f"flush={fail_if('failing')}; while test -e {lab.path('hanging')}; do touch {lab.path('flushing')}; sleep 0.1; done"]

    def serve():
        if os.path.exists(socket):
            os.unlink(socket)
        process = subprocess.Popen(words)
        lab.cleanups.append(process.kill)
        wait_until("nbdkit listens", lambda: os.path.exists(socket))
        return process

    backing = serve()
    os.mkdir(lab.path("state"))
    server = lab.server([{"name": "vol", "storage": {"kind": "nbd", "uri": f"nbd+unix:///?socket={socket}"},
                          "allow": [{"session": name, "access": "migration"} for name in ("host-a", "host-b")]}],
                        prefix=["env", f"STATE_DIRECTORY={lab.path('state')}"])
    client = lab.client(server, {"vol": {}})
    h = connected(lab, "vol")

    check(write_then(server.stop) == 0, "a restart in order loses nothing")
    check(write_then(server.kill) == errno.EIO, "nobody knows what a killed server's connection had unflushed")
    check(write_then(server.stop) == 0, "a restart in order loses nothing, also after that")
    check(device()["lost_caches"] == 1, "one was lost")

    # What the NBD server cannot write back it says once: to one flush, or to one write with FUA.
    second = lab.client(server, {"vol": {"access": "migration"}}, name="second", session="host-b")
    lost = device()["lost_caches"]
    all_hear_of_it("a flush", "failing", h.flush)
    all_hear_of_it("a write with FUA", "failing", h.pwrite, b"x" * 4096, 0, nbd.CMD_FLAG_FUA)
    check(device()["lost_caches"] == lost + 2, "two were lost")
    # Not so what cannot be written at all.
    h.pwrite(b"x" * 4096, 0)
    check(fails("all-failing", h.pwrite, b"x" * 4096, 0, nbd.CMD_FLAG_FUA), "no write succeeds")
    check(error_of(h.flush) == 0, "which says nothing of others")
    second.stop()
    check(write_then(server.stop) == errno.EIO, "an end with a failed write with FUA behind it is not one with everything flushed")
    check(write_then(server.stop) == 0, "the next one is")

    # The NBD server is lost, with a flush under way, and nothing that this could lose.
    open(lab.path("hanging"), "w").close()
    flush = h.aio_flush()
    while not os.path.exists(lab.path("flushing")):
        h.poll(100)
    backing.kill()
    backing.wait()
    os.unlink(lab.path("hanging"))
    backing = serve()
    check(error_of(finish, h, flush) == 0, "the flush is sent again")

    # The NBD server is lost, with flushes of two connections that wait for it.
    lost = device()["lost_caches"]
    other = connected(lab, "vol")
    h.pwrite(b"x" * 4096, 0)
    before = sockets()
    backing.kill()
    backing.wait()
    wait_until("the server has noticed", lambda: sockets() < before)
    flushes = [(one, one.aio_flush()) for one in (h, other)]
    for one in (h, other):
        one.poll(100)
    backing = serve()
    for one, flush in flushes:
        check(error_of(finish, one, flush) == errno.EIO, "a flush that waited fails")
    for one in (h, other):
        check(error_of(one.flush) == 0, "once")
    check(device()["lost_caches"] == lost + 1, "it was one loss")
    check(write_then(server.stop) == 0, "and is none of the next end in order")

    # Where no flush succeeds, and somebody goes on, each one says so, and the logs do not.
    before, failed = lines(), 0
    with open(lab.path("failing"), "w"):
        for _ in range(20):
            h.pwrite(b"x" * 4096, 0)
            failed += error_of(h.flush) == errno.EIO
    os.unlink(lab.path("failing"))
    check(failed == 20, f"only {failed} flushes have failed")
    check(lines() - before < 15, f"{lines() - before} lines tell of one storage that fails")
    failure = json.loads(server.ctl("--json", "exports").stdout)["result"]["exports"][0]["last_error"]
    check(failure is not None and failure["request"] == "flush", f"exports shows what has failed: {failure}")
