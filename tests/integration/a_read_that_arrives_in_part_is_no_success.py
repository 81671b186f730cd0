"""Behind an export is an NBD server that ends the answer to a read before all of it was sent, which the protocol does
not allow. The read fails: zeroes would pass for what is there."""
import errno
import struct
import threading

from harness import *
from nbd_clients import *
from nbd_handshake import shake_hands

if built_with("LIBNBD_FOUND") != "1":
    skip("the server was built without libnbd")

SIZE, HALF, WHOLE = 1 << 20, 32 << 10, 64 << 10
READ = 0
CHUNK, DONE, NOTHING, DATA, HOLE = 0x668E33EF, 1, 0, 1, 2


def chunk(kind, cookie, data=b"", flags=0):
    return struct.pack(">IHHQI", CHUNK, flags, kind, cookie, len(data)) + data


def part(offset, count):
    return struct.pack(">Q", offset) + b"d" * count


# How 64 KiB are answered, by where they are read.
ANSWERS = {
    "in one piece": lambda at, cookie: chunk(DATA, cookie, part(at, WHOLE), DONE),
    "in two pieces, the last first": lambda at, cookie: (
        chunk(DATA, cookie, part(at + HALF, HALF)) + chunk(DATA, cookie, part(at, HALF), DONE)),
    "with a hole": lambda at, cookie: (chunk(DATA, cookie, part(at, HALF)) +
                                       chunk(HOLE, cookie, struct.pack(">QI", at + HALF, HALF), DONE)),
    "by half": lambda at, cookie: chunk(DATA, cookie, part(at, HALF), DONE),
    "by nothing": lambda at, cookie: chunk(NOTHING, cookie, flags=DONE),
}
EXPECTED = {"in one piece": b"d" * WHOLE, "in two pieces, the last first": b"d" * WHOLE,
            "with a hole": b"d" * HALF + bytes(HALF)}


def serve(connection):
    shake_hands(connection, SIZE)
    while True:
        request = connection.recv(28, socket.MSG_WAITALL)
        if len(request) < 28:
            return
        _, _, command, cookie, offset, _ = struct.unpack(">IHHQQI", request)
        if command != READ:
            return
        connection.sendall(list(ANSWERS.values())[offset // WHOLE](offset, cookie))


def accept(listener):
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


with Lab() as lab, socket.create_server(("127.0.0.1", 0)) as listener:
    threading.Thread(target=accept, args=(listener,), daemon=True).start()
    uri = f"nbd://127.0.0.1:{listener.getsockname()[1]}/"
    server = lab.server([{"name": "vol", "storage": {"kind": "nbd", "uri": uri},
                          "allow": [{"session": "host-a", "access": "rw"}]}])
    lab.client(server, {"vol": {}})
    h = connected(lab, "vol")
    for number, how in enumerate(ANSWERS):
        if how in EXPECTED:
            check(h.pread(WHOLE, number * WHOLE) == EXPECTED[how], f"a read that is answered {how}")
        else:
            error = error_of(h.pread, WHOLE, number * WHOLE)
            check(error == errno.EIO, f"a read that is answered {how} fails: {error}")
