"""A write with FUA to a file on FUSE is followed by a synchronization of the file: with direct I/O nothing else makes it durable there."""
import ctypes
import errno
import struct

from harness import *
from nbd_clients import *

SIZE = 4 << 20
FILE = 2  # its inode; the folder's is 1
# Of FUSE's protocol.
LOOKUP, FORGET, GETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = 1, 2, 3, 14, 15, 16, 17, 18, 20
FLUSH, INIT, OPENDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 25, 26, 27, 29, 36, 42
FOPEN_DIRECT_IO = 1


def attributes(inode):
    size, mode = (SIZE, 0o100600) if inode == FILE else (0, 0o40755)
    return struct.pack("<6Q10I", inode, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def serve(folder, log, open_flags):
    """A file system of one file; what is written, and synchronized, is in the log."""
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
    if ctypes.CDLL(None).mount(b"one", folder.encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit("cannot mount")
    content = bytearray(SIZE)
    while True:
        try:
            request = os.read(fuse, 1 << 20)
        except OSError:
            return  # unmounted
        _, what, number, inode = struct.unpack_from("<IIQQ", request)
        body, answer, error = request[40:], b"", 0
        if what in (FORGET, INTERRUPT, BATCH_FORGET):
            continue
        if what == INIT:
            answer = struct.pack("<IIIIHHIIHHI", 7, 31, 0x20000, 0, 16, 16, 1 << 17, 1, 32, 0, 0) + bytes(24)
        elif what == LOOKUP and body[:-1] == b"file":
            answer = struct.pack("<QQQQII", FILE, 0, 1, 1, 0, 0) + attributes(FILE)
        elif what == GETATTR:
            answer = struct.pack("<QII", 1, 0, 0) + attributes(inode)
        elif what in (OPEN, OPENDIR):
            answer = struct.pack("<QII", 1, open_flags if what == OPEN else 0, 0)
        elif what == READ:
            _, at, size = struct.unpack_from("<QQI", body)
            answer = bytes(content[at:at + size])
        elif what == WRITE:
            _, at, size = struct.unpack_from("<QQI", body)
            content[at:at + size] = body[40:40 + size]
            answer = struct.pack("<II", size, 0)
        elif what == STATFS:
            answer = struct.pack("<5Q4I", 1, 1, 1, 1, 1, 4096, 255, 4096, 0) + bytes(24)
        elif what not in (FSYNC, FLUSH, RELEASE, RELEASEDIR):
            error = errno.ENOENT if what == LOOKUP else errno.ENOSYS
        if what in (WRITE, FSYNC):
            with open(log, "a") as out:
                out.write("write\n" if what == WRITE else "sync\n")
        os.write(fuse, struct.pack("<IiQ", 16 + len(answer), -error, number) + answer)


if len(sys.argv) > 1:
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    sys.exit()

need_root()
if not os.path.exists("/dev/fuse"):
    skip("/dev/fuse is not there")
for open_flags in (0, FOPEN_DIRECT_IO):
    with Lab() as lab:
        folder, log = lab.path("folder"), lab.path("done")
        os.mkdir(folder)
        process = subprocess.Popen([sys.executable, __file__, folder, log, str(open_flags)])

        def end():
            run("umount", "--lazy", folder, ok=False)
            process.kill()
            process.wait()

        lab.cleanups.append(end)
        file = os.path.join(folder, "file")
        wait_until("it is mounted or has failed", lambda: process.poll() is not None or os.path.exists(file))
        if process.poll() is not None:
            skip("no file system on FUSE here")
        server = lab.server([export("vol", file)])
        client = lab.client(server, {"vol": {}})
        h = connected(lab, "vol")

        def done_by(call):
            open(log, "w").close()
            call()
            with open(log) as text:
                return text.read().split()

        what = f"open flags {open_flags}"
        check(done_by(lambda: h.pwrite(b"x" * 4096, 0)) == ["write"], f"{what}: a plain write is one")
        durable = done_by(lambda: h.pwrite(b"y" * 4096, 4096, nbd.CMD_FLAG_FUA))
        check(durable == ["write", "sync"], f"{what}: one with FUA: {durable}")
        zeroes = done_by(lambda: h.zero(4096, 0, nbd.CMD_FLAG_FUA))
        check(zeroes == ["write", "sync"], f"{what}: zeroes with FUA: {zeroes}")
        check(done_by(h.flush) == ["sync"], f"{what}: a flush")
        check(h.pread(8192, 0) == bytes(4096) + b"y" * 4096, f"{what}: all is there")
