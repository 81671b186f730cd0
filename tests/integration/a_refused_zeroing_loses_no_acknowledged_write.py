"""A block device that cannot zero or trim, for want of room, costs nothing that was acknowledged before, and not flushed: the kernel drops
what its page cache has of a range before it asks the device."""
from harness import *
from nbd_clients import *
from one_file_on_fuse import *

need_root()
need("losetup")

with Lab() as lab:
    file, done_by = file_on_fuse(lab)
    holes = lab.path("holes")

    def let_holes_be(said):
        with open(holes + ".new", "w") as out:
            out.write(said)
        os.rename(holes + ".new", holes)

    let_holes_be("possible")
    made = run("losetup", "--find", "--show", file, ok=False)
    if made.returncode != 0:
        skip("no loop devices here")
    disk = made.stdout.strip()
    lab.cleanups.append(lambda: run("losetup", "--detach", disk, ok=False))
    server = lab.server([export("vol", disk)])
    client = lab.client(server, {"vol": {}})
    h = connected(lab, "vol")
    ways = (("zero", lambda: h.zero(16384, 4096)), ("zero, no hole", lambda: h.zero(16384, 4096, nbd.CMD_FLAG_NO_HOLE)),
            ("trim", lambda: h.trim(16384, 4096)))
    for name, empty in ways:
        h.pwrite(b"O" * 4096, 8192)
        h.flush()
        h.pwrite(b"N" * 4096, 8192)
        let_holes_be("no room")
        error = error_of(empty)
        let_holes_be("possible")
        check(error in (errno.ENOSPC, errno.EIO), f"{name} is refused: {error}")
        check(h.pread(4096, 8192) == b"N" * 4096, f"{name}: the newest write is there")
        check(error_of(h.flush) == 0, f"{name}: nothing was lost")
        check(h.pread(4096, 8192) == b"N" * 4096, f"{name}: after the flush, too")
    # Where there is room it does what it is for.
    for name, empty in ways[:2]:
        h.pwrite(b"N" * 4096, 8192)
        empty()
        check(h.pread(4096, 8192) == bytes(4096), f"{name} is done")
