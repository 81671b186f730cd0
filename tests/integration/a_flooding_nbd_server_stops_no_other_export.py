"""Behind an export is an NBD server that sends without end what the protocol allows it to send: in the
handshake, as the answer to GO, and then chunks of one read. Another export is read and written meanwhile, and the
flooded one is removed."""
import struct
import threading

from harness import *
from nbd_clients import *
from nbd_handshake import shake_hands, take

if built_with("LIBNBD_FOUND") != "1":
    skip("the server was built without libnbd")

SIZE = 1 << 20
READ, WRITE, DISCONNECT = 0, 1, 2
CHUNK, OFFSET_DATA = 0x668E33EF, 1


class Flood:
    """An NBD server that floods whoever connects, at the place that is chosen."""

    def __init__(self, place):
        self.place, self.sent = place, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"nbd://127.0.0.1:{self.listener.getsockname()[1]}/"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            threading.Thread(target=self.serve, args=(self.listener.accept()[0],), daemon=True).start()

    def send_without_end(self, connection, piece):
        pieces = piece * ((1 << 20) // len(piece))  # faster sent than taken
        while True:
            self.sent += connection.send(pieces)

    def serve(self, connection):
        try:
            self.talk(connection)
        except OSError:
            pass  # it has gone

    def talk(self, connection):
        flood = (lambda info: self.send_without_end(connection, info)) if self.place == "handshake" else None
        shake_hands(connection, SIZE, at_go=flood)
        while True:
            _, _, command, cookie, offset, count = struct.unpack(">IHHQQI", take(connection, 28))
            if command == READ:
                self.send_without_end(connection, struct.pack(
                    ">IHHQIQ", CHUNK, 0, OFFSET_DATA, cookie, 8 + count, offset) + bytes(count))
            if command == WRITE:
                take(connection, count)
            if command == DISCONNECT:
                return


def more_of(flood):
    before = flood.sent
    wait_until("the NBD server sends", lambda: flood.sent > before + (1 << 20))


def works(h, number):
    h.pwrite(number.to_bytes(2, "little") * 256, number * 512)
    check(h.pread(512, number * 512) == number.to_bytes(2, "little") * 256, "it is read back")


for place in ("handshake", "read"):
    with Lab() as lab:
        flood = Flood(place)
        flooded = {"name": "flooded", "storage": {"kind": "nbd", "uri": flood.uri},
                   "allow": [{"session": "host-a", "access": "rw"}]}
        server = lab.server([export("file", lab.path("f"), "1MiB"), flooded])
        lab.client(server, {"file": {}} | ({"flooded": {}} if place == "read" else {}))
        h = connected(lab, "file")
        if place == "read":
            reader = connected(lab, "flooded")
            reader.aio_pread(nbd.Buffer(512), 0)
        wait_until("more has come than sockets hold", lambda: flood.sent > 16 << 20)
        for number in range(5):
            more_of(flood)
            works(h, number)
        server.ctl("exports", "remove", "flooded", "--force")
        check([e["name"] for e in server.status()["exports"]] == ["file"], "it is gone")
        works(h, 5)
