"""The server's machine is restarted in order: no flush fails. It crashes: the next flush does, also of a file."""
import errno

from harness import *
from nbd_clients import *

need("unshare")
need_root()


def boot(number):
    """The machine has another boot id from here on, for servers that start."""
    with open(lab.path("boot_id"), "w") as out:
        out.write(f"00000000-0000-0000-0000-{number:012}\n")


def wait_for(word):
    wait_until(f"the devices are {word}", lambda: all(d["state"] == word for d in client.status()["devices"]))


def restart(end):
    end()
    wait_for("reopening")
    server.start()
    wait_for("open")


def write_then(end, boot_number=None):
    """What a flush says after a write, and such an end."""
    h.pwrite(b"x" * 4096, 0)
    if boot_number is not None:
        boot(boot_number)
    restart(end)
    result = error_of(h.flush)
    check(error_of(h.flush) == 0, "no flush fails twice")
    return result


with Lab() as lab, small_tmpfs(lab, "small", "1m") as small:
    boot(1)
    inside = ["unshare", "-m", "sh", "-c",
              f"mount --bind {lab.path('boot_id')} /proc/sys/kernel/random/boot_id && exec \"$@\"", "sh"]
    if run(*inside, "true", ok=False).returncode != 0:
        skip("cannot bind files in a mount namespace here")
    os.mkdir(lab.path("state"))
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB"),
                         export("full", os.path.join(small, "full.img"), "4MiB")],
                        prefix=["env", f"STATE_DIRECTORY={lab.path('state')}"] + inside)
    client = lab.client(server, {"vol1": {}, "full": {}})
    h = connected(lab, "vol1")

    check(write_then(server.kill) == 0, "a killed process loses nothing")
    check(write_then(server.kill, 2) == errno.EIO, "a crash of the machine does")
    check(write_then(server.kill) == 0, "once")
    check(write_then(server.stop, 3) == 0, "a restart in order loses nothing")
    check(write_then(server.kill) == 0, "nor does a killed process after it")
    check(write_then(server.stop) == 0, "nor an update of the server")
    check(write_then(server.kill, 4) == errno.EIO, "but a crash does, still")
    lost_caches = {d["name"]: d["lost_caches"] for d in client.status()["devices"]}
    check(lost_caches["vol1"] == 2, "two were lost")

    # A start that fails, in between, has served nobody: what was flushed stays so.
    h.pwrite(b"x" * 4096, 0)
    check(server.stop() == 0, "SIGTERM")
    with socket.create_server(("127.0.0.1", server.port)):
        server.start(wait=False)
        check(server.process.wait(PATIENCE_S) != 0, "the port is taken")
    boot(5)
    server.start()
    wait_for("open")
    check(error_of(h.flush) == 0, "nothing was lost")

    # A durable write that finds no room loses nothing but itself.
    full = connected(lab, "full")
    full.pwrite(b"x" * 4096, 0)
    full.flush()
    check(error_of(full.pwrite, b"x" * (2 << 20), 1 << 20, nbd.CMD_FLAG_FUA) == errno.ENOSPC, "it is full")
    full.pwrite(b"y" * 4096, 0)
    boot(6)
    restart(server.stop)
    check(error_of(full.flush) == 0, "nothing was lost of it")
