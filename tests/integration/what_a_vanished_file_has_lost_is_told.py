"""A file that goes with its file system, and comes back without what was acknowledged and not flushed: the next flush fails."""
import errno

from harness import *
from nbd_clients import *

BLOCK = 4096
AT = 4 << 20

need_root()
need("losetup", "mkfs.ext4", "mount", "umount")
with Lab() as lab, small_tmpfs(lab, "small", "24m") as small:
    # On a disk that has less room than it says.
    disk = os.path.join(small, "disk")
    with open(disk, "wb") as file:
        file.truncate(64 << 20)
    run("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard", disk)
    loop = run("losetup", "-f", "--show", disk, ok=False)
    if loop.returncode != 0:
        skip("no loop devices here")
    loop = loop.stdout.strip()
    lab.cleanups.append(lambda: run("losetup", "-d", loop, ok=False))
    folder = lab.path("folder")
    os.mkdir(folder)
    lab.cleanups.append(lambda: run("umount", folder, ok=False))

    def mount():
        run("mount", "-t", "ext4", "-o", "errors=continue", loop, folder)

    mount()
    image = os.path.join(folder, "image")
    with open(image, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 2 * AT)
        os.fsync(file.fileno())
    server = lab.server([export("vol", image)])
    client = lab.client(server, {"vol": {}})

    def reason():
        return client.status()["devices"][0]["reason"]

    h = connected(lab, "vol")
    h.pwrite(b"x" * BLOCK, 0)
    h.flush()

    def has_it_open():
        """A path in what is not mounted any more begins there."""
        links = []
        for fd in os.listdir(f"/proc/{server.process.pid}/fd"):
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"/proc/{server.process.pid}/fd/{fd}"))
        return any(link.endswith("/image") for link in links)

    def goes():
        run("umount", "-l", folder)
        wait_until("the device says so", lambda: "storage is gone" in reason())
        wait_until("it was let go of", lambda: not has_it_open())

    def goes_and_comes(meanwhile=lambda: None):
        goes()
        meanwhile()
        mount()
        wait_until("it is back", lambda: reason() == "" and client.status()["devices"][0]["state"] == "open")

    # What could be written is no loss.
    h.pwrite(b"y" * BLOCK, 0)
    goes_and_comes()
    h.flush()
    check(h.pread(BLOCK, 0) == b"y" * BLOCK, "it is there")

    filling = os.path.join(small, "fill")

    def fill_up():
        with contextlib.suppress(OSError), open(filling, "wb", buffering=0) as fill:
            while fill.write(b"f" * 65536) == 65536:
                pass

    fill_up()
    h.pwrite(b"n" * BLOCK * 16, AT)
    goes_and_comes(lambda: os.unlink(filling))
    check(error_of(h.flush) == errno.EIO, "the flush says that it was lost")
    check("acknowledged writes may be lost, and the next flush says so" in server.log(), server.log())
    h.flush()
    h.pwrite(b"n" * BLOCK * 16, AT)
    h.flush()
    check(h.pread(BLOCK, AT) == b"n" * BLOCK, "it goes on")

    # So does who removes the export before it is back.
    fill_up()
    h.pwrite(b"n" * BLOCK * 16, AT // 2)
    goes()
    removed = server.ctl("exports", "remove", "vol", "--force", ok=False)
    check(removed.returncode == 1 and "its last flush failed" in removed.stderr, removed)

    # Another file in its place, by the same uuid, has none of it.
    plain, copy = lab.random_file("plain", 1 << 20), lab.path("copy")
    shutil.copyfile(plain, copy)
    second = lab.server([export("vol", plain, uuid="11111111-2222-4333-8444-555555555555")], name="second")
    client = lab.client(second, {"vol": {}}, name="on-second")
    h = connected(lab, "vol", "on-second")
    h.pwrite(b"z" * BLOCK, 0)

    def opened():
        return client.log().count("/vol: open\n")

    before = opened()
    os.rename(copy, plain)
    wait_until("it has gone", lambda: "has vanished" in second.log())
    wait_until("it is back", lambda: opened() > before)
    check(error_of(h.flush) == errno.EIO, "the flush says that it was lost")
    h.flush()
