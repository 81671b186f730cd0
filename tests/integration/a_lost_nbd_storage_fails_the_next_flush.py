"""Over an NBD server's export an orderly restart of rnbd-server fails no flush; what may have lost writes does, once."""
import errno
import importlib.util
import subprocess

from harness import *

if not importlib.util.find_spec("nbd"):
    skip("python3-libnbd is not installed")
import nbd

need("nbdkit")
with open(os.path.join(BUILD, "CMakeCache.txt")) as cache:
    if "LIBNBD_FOUND:INTERNAL=1" not in cache.read():
        skip("the server was built without libnbd")


def error_of(call, *arguments):
    try:
        call(*arguments)
    except nbd.Error as error:
        return error.errnum
    return 0


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
    backing = subprocess.Popen(["nbdkit", "-f", "-U", socket, "eval", "get_size=echo 1048576", "can_write=exit 0",
                                "can_flush=exit 0", "pread=head -c $3 /dev/zero", "pwrite=cat >/dev/null",
                                f"flush=test ! -e {lab.path('failing')} || {{ echo EIO disk >&2; exit 1; }}"])
    lab.cleanups.append(backing.kill)
    wait_until("nbdkit listens", lambda: os.path.exists(socket))
    os.mkdir(lab.path("state"))
    server = lab.server([{"name": "vol", "storage": {"kind": "nbd", "uri": f"nbd+unix:///?socket={socket}"},
                          "allow": [{"session": "host-a", "access": "rw"}]}],
                        prefix=["env", f"STATE_DIRECTORY={lab.path('state')}"])
    client = lab.client(server, {"vol": {}})
    h = nbd.NBD()
    h.connect_uri(lab.uri("vol"))

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
