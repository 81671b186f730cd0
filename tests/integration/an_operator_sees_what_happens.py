"""A lost path is three lines of log; explain says what I/O waits for, and until when."""
import threading

from fio import *
from harness import *

need("fio", "nbdinfo")


class Relay:
    """Carries connections to a server, until it is told to drop them."""

    def __init__(self, port):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target, self.sockets = port, []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.2", self.target))
            self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)

    def drop(self):
        dropped, self.sockets = self.sockets, []
        for one in dropped:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def lines_of(client, path):
    """What the log says of a path, without time and names."""
    return [line.split(f"{path}: ", 1)[1] for line in client.log().splitlines()
            if f"host-a/{path}: " in line]


def in_order(lines, *beginnings):
    left = iter(lines)
    return all(any(line.startswith(one) for line in left) for one in beginnings)


def a_lost_path_is_three_lines(lab, server):
    relay = Relay(server.port)
    client = lab.client(server, {"vol1": {}}, name="one")
    path = f"127.0.0.1:{relay.port}"
    client.ctl("paths", "add", "host-a", path)
    before = len(lines_of(client, path))
    relay.drop()
    wait_until("it is back", lambda: any(
        p["label"] == path and p["state"] == "connected" and p["reconnects"] == 1
        for p in client.status()["sessions"][0]["paths"]))
    lines = lines_of(client, path)[before:]
    check(len(lines) == 3 and lines[0].startswith("connection lost: ") and
          "next attempt in " in lines[1] and lines[2] == "connected", lines)
    check("Traceback" not in client.ctl("paths").stdout, "a table")
    client.stop()
    check("closed: closed" not in client.log(), "a reason that says nothing")


def a_server_that_is_not_there_is_told_once(lab, server):
    nowhere = type("Nowhere", (), {"port": free_port()})
    client = lab.client(nowhere, {"vol1": {}}, name="two", session="host-a",
                        wait_for_devices=False)
    path = f"127.0.0.1:{nowhere.port}"
    wait_until("some attempts failed",
               lambda: client.status()["sessions"][0]["paths"][0]["reconnects_failed"] > 3)
    lines = lines_of(client, path)
    check(lines[0] == "cannot connect: Connection refused" and
          lines[1].startswith("next attempt in ") and len(lines) == 2, lines)
    text = client.ctl("explain", "vol1").stdout
    check("none is unanswered" in text and "0 of 1 paths connected" in text, text)
    check(client.ctl("explain", "vol9", ok=False).returncode == 4, "no such device")
    # The device knows what its path knows, and NBD clients are told; of the server nothing is known.
    why = "the session has no path: cannot connect: Connection refused"
    device, session = client.status()["devices"][0], client.status()["sessions"][0]
    check(device["reason"] == why, device)
    check(session["reason"] == "cannot connect: Connection refused", session)
    check(device["size_bytes"] == 0 and device["block_size"] == 0, device)
    said = run("nbdinfo", lab.uri("vol1", "two"), ok=False, env=dict(os.environ, LIBNBD_DEBUG="1"))
    check(said.returncode != 0 and f"volume vol1 is not open: {why}" in said.stderr, said.stderr)
    check(client.status()["sessions"][0]["protection"] is None and "Protection -: not known" in text, text)
    # It cannot be reached: not yet, and why.
    result = client.ctl("paths", "reconnect", "host-a", path, "--timeout", "1", ok=False)
    check(result.returncode == 7 and "Connection refused" in result.stderr, result)
    client.ctl("paths", "disconnect", "host-a", path)
    why = "disconnected by the operator; no path will be dialled"
    check(client.status()["devices"][0]["reason"] == f"the session has no path: {why}",
          client.status()["devices"])
    check(client.status()["sessions"][0]["reason"] == why, client.status()["sessions"])
    client.stop()


def that_requests_fail_is_told(lab):
    server = lab.server([export("disk", lab.path("disk.img"), "1MiB")], name="second")
    said = lambda client: (client.status()["devices"][0]["reason"],
                           client.status()["sessions"][0]["reason"])
    client = lab.client(server, {"disk": {}}, name="four", session_options={
        "hold_time": "1h", "fail_fast_time": "500ms"})
    server.kill()
    why = "cannot connect: Connection refused; its fail-fast time is over, new requests fail"
    wait_until("new ones fail", lambda: said(client) == ("the session has no path: " + why, why))
    check(f"reopening (the session has no path: {why})" in client.ctl("list").stdout, "shown")
    client.stop()
    server.start()
    client = lab.client(server, {"disk": {}}, name="five", session_options={
        "max_reconnect_attempts": 2})
    server.kill()
    why = "every path has used up its reconnect attempts; requests fail"
    wait_until("all fail", lambda: said(client) == ("the session has no path: " + why, why))
    client.stop()


def a_server_that_has_shrunk_is_told_once(lab):
    server = lab.server([export("disk", lab.path("disk.img"), "1MiB")], name="third", queue_depth=64)
    client = lab.client(server, {"disk": {}}, name="six")
    server.kill()
    server.config_with(lambda config: config.update(queue_depth=32))
    server.start()
    path = lambda: client.status()["sessions"][0]["paths"][0]
    why = "cannot use the server: its queue depth has shrunk to 32, this session needs 64"
    wait_until("it is not used", lambda: path()["reason"] == why and path()["attempts"] > 5)
    check(client.log().count(why) == 1, client.log())
    check(client.status()["sessions"][0]["reason"] == why, client.status()["sessions"])
    client.stop()


def explain(client):
    return client.ask("explain", device="vol1")


def events(client, stage):
    """What the requests in this stage wait for, none if there are none."""
    return {one["event"] for r in explain(client)["requests"] if r["stage"] == stage
            for one in r["next"]}


def requests_say_what_they_wait_for(lab, server):
    client = lab.client(server, {"vol1": {}}, name="three", session_options={
        "heartbeat": {"interval": "500ms", "timeout": "20s"}, "request_deadline": "10s"})
    load = VerifiedLoad(lab, client, "vol1")
    wait_until("I/O runs", lambda: client.status()["devices"][0]["writes"] > 10)
    server.process.send_signal(signal.SIGSTOP)
    try:
        wait_until("they are probed, or their path is dead", lambda: events(
            client, "in_flight") >= {"probe", "path_dead"})
        wait_until("they wait for a path", lambda: events(client, "no_path") >= {
            "connect", "held_for_ever"})
        text = client.ctl("explain", "vol1").stdout
        check("held: no path is up" in text and "held for ever: no hold_time is set" in text and
              "Protection exactly-once" in text, text)
        print(text[:1500])
    finally:
        server.process.send_signal(signal.SIGCONT)
    load.finish()
    paths = client.status()["sessions"][0]["paths"]
    check(paths[0]["failed_over"] > 0 and paths[0]["retried"] > 0 and paths[0]["sent"] >= paths[0]["completed"], paths)


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "64MiB")], host="0.0.0.0")
    a_lost_path_is_three_lines(lab, server)
    a_server_that_is_not_there_is_told_once(lab, server)
    that_requests_fail_is_told(lab)
    a_server_that_has_shrunk_is_told_once(lab)
    requests_say_what_they_wait_for(lab, server)
