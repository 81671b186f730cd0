"""Over an NBD server's export an orderly restart of rnbd-server fails no flush; what may have lost writes does, once."""
import errno
import subprocess

from harness import *
from nbd_clients import *

need("nbdkit")
with open(os.path.join(BUILD, "CMakeCache.txt")) as cache:
    if "LIBNBD_FOUND:INTERNAL=1" not in cache.read():
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


with Lab() as lab:
    socket = lab.path("nbdkit.sock")
    words = ["nbdkit", "-f", "-U", socket, "eval", "get_size=echo 1048576", "can_write=exit 0", "can_flush=exit 0",
             "pread=head -c $3 /dev/zero", "pwrite=cat >/dev/null",
             f"flush=test ! -e {lab.path('failing')} || {{ echo EIO disk >&2; exit 1; }}; "
             f"while test -e {lab.path('hanging')}; do touch {lab.path('flushing')}; sleep 0.1; done"]

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
                          "allow": [{"session": "host-a", "access": "rw"}]}],
                        prefix=["env", f"STATE_DIRECTORY={lab.path('state')}"])
    client = lab.client(server, {"vol": {}})
    h = connected(lab, "vol")

    check(write_then(server.stop) == 0, "a restart in order loses nothing")
    check(write_then(server.kill) == errno.EIO, "nobody knows what a killed server's connection had unflushed")
    check(write_then(server.stop) == 0, "a restart in order loses nothing, also after that")
    check(device()["lost_caches"] == 1, "one was lost")

    # Who else was to hear of it is not known.
    h.pwrite(b"x" * 4096, 0)
    open(lab.path("failing"), "w").close()
    check(error_of(h.flush) == errno.EIO, "the NBD server's flush fails")
    os.unlink(lab.path("failing"))
    check(error_of(h.flush) == 0, "and succeeds again")
    check(write_then(server.stop) == errno.EIO, "an end with a failed flush behind it is not one with everything flushed")
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
