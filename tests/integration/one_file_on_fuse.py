"""A file system on FUSE with one file: what is written, and synchronized, is told in a log, each with the handle that it came by.
Ranges of it can be emptied if the folder of the log has a file `holes`, and are refused for want of room as long as that says so."""
import ctypes
import errno
import struct

from harness import *

SIZE = 4 << 20
PAGE = 4096
FILE = 2  # its inode; the folder's is 1
# Of FUSE's protocol.
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = 1, 2, 3, 4, 14, 15, 16, 17, 18, 20
FLUSH, INIT, OPENDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET, FALLOCATE, LSEEK = 25, 26, 27, 29, 36, 42, 43, 46
FOPEN_DIRECT_IO = 1
WRITEBACK_CACHE = 1 << 16


def attributes(inode):
    size, mode = (SIZE, 0o100600) if inode == FILE else (0, 0o40755)
    return struct.pack("<6Q10I", inode, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


class OneFile:
    """Its requests; each answers with what it has to say, or an errno."""

    def __init__(self, log, open_flags, init_flags):
        self.log, self.open_flags, self.init_flags = log, open_flags, init_flags
        self.content = bytearray(SIZE)
        self.data = set()  # pages that are no hole
        self.opened = 0

    def tell(self, what, body):
        with open(self.log, "a") as out:
            out.write(f"{what} {struct.unpack_from('<Q', body)[0]}\n")

    def seek(self, body):
        _, at, whence = struct.unpack_from("<QQI", body)
        for place in range(at, SIZE, PAGE):
            if (place // PAGE in self.data) == (whence == os.SEEK_DATA):
                return struct.pack("<Q", place)
        return errno.ENXIO if whence == os.SEEK_DATA else struct.pack("<Q", SIZE)

    def empty(self, body):
        _, at, size = struct.unpack_from("<QQQ", body)
        try:
            with open(os.path.join(os.path.dirname(self.log), "holes")) as holes:
                if holes.read() == "no room":
                    return errno.ENOSPC
        except FileNotFoundError:
            return errno.ENOSYS
        self.content[at:at + size] = bytes(size)
        self.tell("empty", body)
        return b""

    def answer(self, what, inode, body):
        if what == INIT:
            return struct.pack("<IIIIHHIIHHI", 7, 31, 0x20000, self.init_flags, 16, 16, 1 << 17, 1, 32, 0, 0) + bytes(24)
        if what == LOOKUP:
            found = struct.pack("<QQQQII", FILE, 0, 1, 1, 0, 0) + attributes(FILE)
            return found if body[:-1] == b"file" else errno.ENOENT
        if what in (GETATTR, SETATTR):
            return struct.pack("<QII", 1, 0, 0) + attributes(inode)
        if what in (OPEN, OPENDIR):
            self.opened += 1
            return struct.pack("<QII", self.opened, self.open_flags if what == OPEN else 0, 0)
        if what == READ:
            _, at, size = struct.unpack_from("<QQI", body)
            return bytes(self.content[at:at + size])
        if what == WRITE:
            _, at, size = struct.unpack_from("<QQI", body)
            self.content[at:at + size] = body[40:40 + size]
            self.data.update(range(at // PAGE, (at + size + PAGE - 1) // PAGE))
            self.tell("write", body)
            return struct.pack("<II", size, 0)
        if what == STATFS:
            return struct.pack("<5Q4I", 1, 1, 1, 1, 1, 4096, 255, 4096, 0) + bytes(24)
        if what == FALLOCATE:
            return self.empty(body)
        if what == LSEEK:
            return self.seek(body)
        if what == FSYNC:
            self.tell("sync", body)
        return b"" if what in (FSYNC, FLUSH, RELEASE, RELEASEDIR) else errno.ENOSYS


def serve(folder, files):
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
    if ctypes.CDLL(None).mount(b"one", folder.encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit("cannot mount")
    while True:
        try:
            request = os.read(fuse, 1 << 20)
        except OSError:
            return  # unmounted
        _, what, number, inode = struct.unpack_from("<IIQQ", request)
        if what in (FORGET, INTERRUPT, BATCH_FORGET):
            continue
        answer = files.answer(what, inode, request[40:])
        error, answer = (answer, b"") if isinstance(answer, int) else (0, answer)
        os.write(fuse, struct.pack("<IiQ", 16 + len(answer), -error, number) + answer)


def file_on_fuse(lab, open_flags=0, init_flags=0):
    """The file, and a function of a call that tells what it has done, as [("write", handle), ...]."""
    need_root()
    if not os.path.exists("/dev/fuse"):
        skip("/dev/fuse is not there")
    folder, log = lab.path("fuse"), lab.path("fuse-log")
    os.mkdir(folder)
    process = subprocess.Popen([sys.executable, __file__, folder, log, str(open_flags), str(init_flags)])

    def end():
        run("umount", "--lazy", folder, ok=False)
        process.kill()
        process.wait()

    lab.cleanups.append(end)
    file = os.path.join(folder, "file")
    wait_until("it is mounted or has failed", lambda: process.poll() is not None or os.path.exists(file))
    if process.poll() is not None:
        skip("no file system on FUSE here")

    def done_by(call):
        open(log, "w").close()
        call()
        with open(log) as text:
            return [tuple(line.split()) for line in text]

    return file, done_by


if __name__ == "__main__":
    serve(sys.argv[1], OneFile(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
