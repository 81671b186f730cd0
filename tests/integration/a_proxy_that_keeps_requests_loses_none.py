"""A proxy or tunnel on the way acknowledges what one connection of a path sends, and keeps it: TCP sees nothing of that. The
path is made anew, its requests go on, no error.
"""
import errno
import socket
import threading

from harness import *
from nbd_clients import *

BLOCK = 4096


class Proxy:
    """In front of a server. Of one connection it takes all, and passes on nothing more of one direction."""

    def __init__(self, lab, port):
        self.to = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.passed = {}  # (connection, direction) -> bytes
        self.kept = set()
        self.count = 0
        lab.cleanups.append(self.listener.close)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            server = socket.create_connection(("127.0.0.1", self.to))
            self.count += 1
            for direction, source, target in (("up", client, server), ("down", server, client)):
                threading.Thread(target=self.run, args=((self.count, direction), source, target), daemon=True).start()

    def run(self, which, source, target):
        self.passed[which] = 0
        try:
            while data := source.recv(1 << 16):
                if which not in self.kept:
                    target.sendall(data)
                    self.passed[which] += len(data)
        except OSError:
            pass
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def keep(self, direction, before):
        """Of the busiest connection, since there were so many."""
        which = max((one for one in self.passed if one[1] == direction and one[0] > before), key=self.passed.get)
        self.kept.add(which)


def load(h, enough, pause=0):
    """Reads and writes until enough(how many), eight under way or one more in each pause, and all of them are answered; (how many,
    the longest)."""
    deadline, over, looked = time.monotonic() + PATIENCE_S, False, 0
    done, longest, number = 0, 0, 0
    under_way, begun = {}, 0
    while not over or under_way:
        if not over and time.monotonic() > looked + 0.1:
            over, looked = enough(done), time.monotonic()
        while (time.monotonic() > begun + pause if pause else len(under_way) < 8) and not over:
            number, begun = number + 1, time.monotonic()
            offset = number % 1024 * BLOCK
            def completed(error, number=number):
                nonlocal done, longest
                check(error.value == 0, f"request {number}: {errno.errorcode.get(error.value)}")
                done, longest = done + 1, max(longest, time.monotonic() - under_way.pop(number))
                return 1
            under_way[number] = time.monotonic()
            if number % 2:
                h.aio_pwrite(bytes([number % 251 + 1]) * BLOCK, offset, completed)
            else:
                h.aio_pread(nbd.Buffer(BLOCK), offset, completed)
        h.poll(50)
        check(time.monotonic() < deadline, f"{len(under_way)} requests are still under way, over: {over}")
    return done, longest


with Lab() as lab:
    # Longer than the path needs to find out that something keeps what is asked.
    slow = {"storage": {"kind": "delay", "read": "8s", "of": {"kind": "memory", "size": 4 << 20}}}
    allow = [{"session": "host-a", "access": "rw"}]
    server = lab.server([export("vol", lab.path("vol.img"), 4 << 20), dict(slow, name="slow", allow=allow)])
    proxy = Proxy(lab, server.port)
    # Times that a machine which is busy with something else keeps, too.
    client = lab.client(proxy, {"vol": {}, "slow": {}}, session_options={
        "heartbeat": {"interval": "500ms", "timeout": "5s"}, "request_deadline": "500ms"})
    path = lambda: client.status()["sessions"][0]["paths"][0]
    # An answer that is late for its storage ends no path.
    h = connected(lab, "slow")
    h.pread(BLOCK, 0)
    h.shutdown()
    check(path()["reconnects"] == 0, f"the path stays: {path()}")
    h = connected(lab, "vol")
    for direction, pause in (("up", 0), ("down", 0), ("up", 0.3)):
        before = proxy.count
        client.ctl("paths", "reconnect", "host-a", f"127.0.0.1:{proxy.port}")
        load(h, lambda done: done >= 500)
        reconnects = path()["reconnects"]
        proxy.keep(direction, before)
        done, longest = load(h, lambda _: path()["reconnects"] > reconnects, pause)
        print(f"{direction}, {f'one each {pause} s' if pause else 'eight under way'}: {done} requests, the longest {longest:.2f} s")
    check("answers nothing, though the server answers on another" in client.log(), "the log says why")
    h.shutdown()
