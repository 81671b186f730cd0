"""A full disk, a read-only file, a vanished file, a limit of file sizes: the right errno at the NBD client, one line in the log."""
import errno

from harness import *
from nbd_clients import *


def expect(code, call, *arguments):
    try:
        call(*arguments)
    except nbd.Error as error:
        check(error.errnum == code, f"expected {errno.errorcode[code]}, got {error}")
        return
    raise AssertionError(f"{call.__name__} succeeded, expected {errno.errorcode[code]}")


def lines(daemon, *words):
    return [line for line in daemon.log().splitlines() if all(word in line for word in words)]


def tried_again(server, name, times):
    """Each attempt to open an export that waits begins the time until the next one anew."""
    last, seen = None, 0

    def seen_all():
        nonlocal last, seen
        left = next(e["next_attempt_s"] for e in server.status()["exports"] if e["name"] == name)
        seen += left is not None and last is not None and left > last
        last = left
        return seen >= times

    wait_until(f"{name} was tried again", seen_all)


with Lab() as lab, small_tmpfs(lab, "small", "4m") as small, small_tmpfs(lab, "roomy", "4m") as roomy:
    read_only = lab.random_file("read-only.img", 1 << 20)
    os.chmod(read_only, 0o444)
    server = lab.server([
        export("full", os.path.join(small, "full.img"), "64MiB"),
        export("read-only", read_only, access="ro", read_only=True),
        export("vanishing", lab.path("vanishing.img"), "1MiB"),
    ])
    client = lab.client(server, {"full": {}, "read-only": {"access": "ro"}, "vanishing": {}})

    h = connected(lab, "full")
    block = bytes(1024 * 1024 - 1) + b"x"
    def fill():
        for at in range(0, 64 << 20, len(block)):
            h.pwrite(block, at)
    expect(errno.ENOSPC, fill)
    check(len(h.pread(4096, 0)) == 4096, "reads go on")
    check(lines(server, "full", "No space left"), "the log names the full volume")
    check(len(lines(server, "full", "No space left")) <= 3, "and does not repeat itself")
    last = server.status()["exports"][0]["last_error"]
    check(last["error"] == "No space left on device" and last["request"].startswith("write of ") and last["errors"] > 0, last)
    shown = server.ctl("exports").stdout
    check("full: " in shown and f"for {last['session']}: No space left on device" in shown, shown)
    check(server.status()["exports"][1]["last_error"] is None, "of the others there is none")

    h = connected(lab, "read-only")
    check(h.is_read_only(), "read-only is announced")
    h.set_strict_mode(0)
    expect(errno.EPERM, h.pwrite, b"x" * 512, 0)

    h = connected(lab, "vanishing")
    h.pwrite(b"y" * 4096, 0)
    os.unlink(lab.path("vanishing.img"))
    wait_until("the server has noticed", lambda: any(
        e["name"] == "vanishing" and e["state"] == "waiting" for e in server.status()["exports"]))
    expect(errno.EIO, h.pwrite, b"z" * 4096, 0)
    tried_again(server, "vanishing", 3)
    check(not os.path.exists(lab.path("vanishing.img")), "no empty file takes its place")
    check(len(lines(server, "vanishing", "vanished")) == 1, "one line tells that it has vanished")

    # A limit of the process: the write fails, as on a full disk, and the daemon goes on. In memory the
    # write is a system call of the daemon's own thread, which the kernel would end by a signal.
    limited = lab.server([export("memory", os.path.join(roomy, "limited.img"), "2MiB"),
                          export("disk", lab.path("limited.img"), "2MiB")], name="limited")
    lab.client(limited, {"memory": {}, "disk": {}}, name="on-limited")
    run("prlimit", "--pid", str(limited.process.pid), "--fsize=1048576")
    for name in ("memory", "disk"):
        h = connected(lab, name, "on-limited")
        h.pwrite(block[:4096], 1048576 - 4096)
        expect(errno.ENOSPC, h.pwrite, block[:4096], 1048576)
        check(h.pread(4096, 1048576 - 4096) == block[:4096], f"{name}: reads and smaller writes go on")
    check(limited.running(), "the daemon is there")
