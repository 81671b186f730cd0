"""A stall is planted at each stage of a request; rnbdctl explain names that stage, and what ends it.

But for those that our daemons do not have between each other, or not for long: lost_path (a server
without sequences), settling and failing; tests/unit/rnbd-client/next_event.cpp has these.
"""
import re
import struct
import threading

from harness import *
from nbd_clients import *

BLOCK = 4096
# What people read for each stage.
WORDS = {"payload": "waits for its NBD client", "own_share": "waits for its connection",
         "permit": "waits for a permit", "left_behind": "waits for clients gone",
         "answered": "answered, not taken", "in_flight": "in flight",
         "no_path": "held: no path is up", "reopening": "held: volume not open"}
# Nothing is probed or given up while a test looks at it; and the other way round.
PATIENT = {"heartbeat": {"interval": "1s", "timeout": "300s"}, "request_deadline": "200s",
           "probe_timeout": "200s"}
SUSPICIOUS = {"heartbeat": {"interval": "500ms", "timeout": "15s"}, "request_deadline": "500ms",
              "probe_timeout": "6s"}
STAGES = set()


class Link:
    """Carries connections to a server; may fall silent, or be cut."""

    def __init__(self, port):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.target = self.listener.getsockname()[1], port
        self.open, self.sockets = threading.Event(), []
        self.open.set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # it was killed
                near.close()
                continue
            self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.open.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def cut(self):
        cut, self.sockets = self.sockets, []
        for one in cut:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


class RawClient:
    """An NBD client that does not keep to the rules."""

    def __init__(self, lab, client):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(lab.socket(client.name, "vol"))
        self.read(18)
        self.socket.sendall(struct.pack(">I", 2) + b"IHAVEOPT" + struct.pack(">II", 1, 3) + b"vol")
        self.read(10)

    def read(self, length):
        data = b""
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            check(part, "the connection has ended")
            data += part
        return data

    def ask(self, command, offset, length, payload=b""):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, offset, offset, length) +
                            payload)


def write(h, offset):
    return h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b"x" * BLOCK)), offset)


def ended(h, cookie):
    """Waits for it: 0, or its errno."""
    result = []

    def is_over():
        try:
            h.poll(10)
            if h.aio_command_completed(cookie):
                result.append(0)
        except nbd.Error as error:
            result.append(error.errnum)
        return result
    wait_until("it is answered", is_over)
    return result[0]


def explain(client):
    return client.ask("explain", device="vol")["requests"]


def stalled_at(client, offset, stage, *events, handles=()):
    """The request at this offset is in this stage, and these are next. What explain says of it."""
    def found():
        for h in handles:
            h.poll(0)
        return [r for r in explain(client) if r["offset"] == offset and r["stage"] == stage and
                [one["event"] for one in r["next"]] == list(events)]
    try:
        request, = wait_until(f"{offset} is in {stage}", found)
    except AssertionError as error:
        raise AssertionError(f"{error}: {explain(client)}") from None
    STAGES.add(stage)
    text = client.ctl("explain", "vol").stdout.split("oldest first:\n")[1]
    line, = [line for line in text.splitlines()
             if re.match(rf"  vol +\w+ +{offset} ", line)]
    check([one for one, words in WORDS.items() if f"  {words}  " in line] == [stage],
          f"{stage}: {line}")
    print(f"{stage:12}{line}")
    return request


def at_the_client(lab, client, gate):
    raw = RawClient(lab, client)
    raw.ask(1, 0x10000, 2 * BLOCK, b"half" * 1024)
    request = stalled_at(client, 0x10000, "payload", "payload")
    check(request["operation"] == "write" and request["bytes"] == 2 * BLOCK and
          request["permit"] is None and request["next"][0]["in_s"] > 0, request)
    raw.socket.sendall(b"rest" * 1024)
    check(raw.read(16)[4:8] == bytes(4), "then it is done")

    # The last one does not fit into the socket.
    for i in range(4):
        raw.ask(0, i << 18, 1 << 18)
    request = stalled_at(client, 3 << 18, "answered", "taken")
    check(request["operation"] == "read", request)
    raw.read(4 * (16 + (1 << 18)))

    # All permits are taken by one connection: the next of its own waits for those, one of another
    # for a permit.
    open(gate, "w").close()
    mine, other = connected(lab, "vol", client.name), connected(lab, "vol", client.name)
    cookies = [(mine, write(mine, i * BLOCK)) for i in range(9)]
    stalled_at(client, 8 * BLOCK, "own_share", "own_answers", handles=[mine])
    cookies.append((other, write(other, 9 * BLOCK)))
    stalled_at(client, 9 * BLOCK, "permit", "permit", handles=[mine, other])
    os.unlink(gate)
    check([ended(*one) for one in cookies] == 10 * [0], "all are done")

    # A client that has gone has left a write behind.
    open(gate, "w").close()
    raw.ask(1, 0x20000, BLOCK, b"gone" * 1024)
    wait_until("it is on its way", lambda: [r["stage"] for r in explain(client)] == ["in_flight"])
    raw.socket.close()
    wait_until("it is seen", lambda: client.status()["devices"][0]["left_behind"] == 1)
    cookie = other.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(2 * BLOCK)), 0x20000 - BLOCK)
    stalled_at(client, 0x20000 - BLOCK, "left_behind", "left_behind", handles=[other])
    os.unlink(gate)
    check(ended(other, cookie) == 0, "then it is done")


def the_storage_is_slow(lab, client, gate):
    """The server's machine answers, so it has the request."""
    h = connected(lab, "vol", client.name)
    open(gate, "w").close()
    cookie = write(h, BLOCK)
    request = stalled_at(client, BLOCK, "in_flight", "answer", "path_dead", handles=[h])
    check(request["attempts"] == 1 and request["attempt_age_s"] >= 6.5, request)
    os.unlink(gate)
    check(ended(h, cookie) == 0, "slow, but done")


def the_link_is_silent(lab, client, link):
    h = connected(lab, "vol", client.name)
    link.open.clear()
    cookie = write(h, BLOCK)
    request = stalled_at(client, BLOCK, "in_flight", "probe", "path_dead", handles=[h])
    check(request["path"] == f"127.0.0.1:{link.port}", request)
    link.open.set()
    check(ended(h, cookie) == 0, "then it is done")


def the_server_stands_still(lab, server, patient, suspicious):
    handles = [connected(lab, "vol", one.name) for one in (patient, suspicious)]
    server.process.send_signal(signal.SIGSTOP)
    try:
        cookies = [write(h, BLOCK) for h in handles]
        stalled_at(patient, BLOCK, "in_flight", "probe", "path_dead", handles=handles)
        # Its path is dead by and by.
        stalled_at(suspicious, BLOCK, "no_path", "connect", "held_for_ever", handles=handles)
    finally:
        server.process.send_signal(signal.SIGCONT)
    check([ended(*one) for one in zip(handles, cookies)] == [0, 0], "then they are done")


def no_path_is_up(lab, server, client, gate):
    """Requests from before and after the loss; then the server has no such volume for a while."""
    h = connected(lab, "vol", client.name)
    open(gate, "w").close()
    cookies = [write(h, BLOCK)]
    stalled_at(client, BLOCK, "in_flight", "answer", "path_dead", handles=[h])
    server.kill()
    stalled_at(client, BLOCK, "no_path", "connect", "held_for_ever")
    cookies.append(write(h, 2 * BLOCK))
    for offset in (2 * BLOCK, BLOCK):
        stalled_at(client, offset, "no_path", "connect", "held_for_ever", handles=[h])
    client.ctl("hold", "86400")
    for offset in (2 * BLOCK, BLOCK):
        stalled_at(client, offset, "no_path", "connect", "fail")
    client.ctl("hold", "--off")

    exports = []
    server.config_with(lambda config: exports.append(config["exports"].pop(0)))
    server.start()
    for offset in (2 * BLOCK, BLOCK):
        stalled_at(client, offset, "reopening", "reopen", "held_for_ever")
    server.stop()
    server.config_with(lambda config: config["exports"].insert(0, exports[0]))
    server.start()
    os.unlink(gate)
    check([ended(h, cookie) for cookie in cookies] == [0, 0], "then they are done")

    path = client.status()["sessions"][0]["paths"][0]["label"]
    client.ctl("paths", "disconnect", "host-a", path)
    cookie = write(h, 3 * BLOCK)
    stalled_at(client, 3 * BLOCK, "no_path", "no_attempt", "held_for_ever", handles=[h])
    client.ctl("paths", "reconnect", "host-a", path)
    check(ended(h, cookie) == 0, "then it is done")


def an_older_attempt_is_under_way(lab, server, client, link, gate):
    """Its path was lost while it was in the storage: at the server the next attempt waits until that has ended."""
    h = connected(lab, "vol", client.name)
    open(gate, "w").close()
    cookie = write(h, BLOCK)
    wait_until("the server has it", lambda: h.poll(0) is not None and
               any(s["in_flight"] == 1 for s in server.status()["sessions"]))
    link.cut()
    wait_until("it was sent again", lambda: explain(client)[0]["attempts"] == 2)
    stalled_at(client, BLOCK, "in_flight", "probe", "path_dead")
    wait_until("it waits at the server", lambda: any(
        s["waited"] > 0 for s in server.status()["sessions"]))
    os.unlink(gate)
    check(ended(h, cookie) == 0, "then it is done")


def main():
    with Lab() as lab:
        gates = {name: lab.path(f"gate-{name}") for name in "ab"}
        server = lab.server(
            [{"name": f"vol-{name}", "allow": [{"session": f"host-{name}", "access": "rw"}],
              "storage": {"kind": "delay", "of": {"kind": "memory", "size": "2MiB"}, "gate": gate}}
             for name, gate in gates.items()], queue_depth=9, heartbeat=PATIENT["heartbeat"])
        link = Link(server.port)
        suspicious, patient = (lab.client(where, {"vol": {"volume": f"vol-{name}"}}, name=name,
                                          session=f"host-{name}", session_options=options)
                               for name, where, options in (("a", server, SUSPICIOUS),
                                                            ("b", link, PATIENT)))
        at_the_client(lab, suspicious, gates["a"])
        the_storage_is_slow(lab, suspicious, gates["a"])
        the_link_is_silent(lab, patient, link)
        the_server_stands_still(lab, server, patient, suspicious)
        an_older_attempt_is_under_way(lab, server, patient, link, gates["b"])
        no_path_is_up(lab, server, suspicious, gates["a"])
        check(STAGES == set(WORDS), f"not planted: {set(WORDS) - STAGES}")
        check("none is unanswered" in suspicious.ctl("explain", "vol").stdout, "nothing is left")


main()
