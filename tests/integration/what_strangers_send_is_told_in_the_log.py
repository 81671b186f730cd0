"""Whoever speaks another protocol to the server, or this one wrongly, loses the connection, and the log says from where and what was wrong."""
from harness import *
from nbd_clients import *

with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1"), "1MiB")])
    client = lab.client(server, {"vol1": {}})
    h = connected(lab, "vol1")

    def say(what, end=False):
        """What the log says of it."""
        with socket.create_connection(("127.0.0.1", server.port)) as stranger:
            stranger.sendall(what)
            if end:
                stranger.shutdown(socket.SHUT_WR)
            address = "%s:%d" % stranger.getsockname()
            try:
                check(stranger.recv(100) == b"", "the connection is closed")
            except ConnectionResetError:
                pass  # with some of it unread
        return wait_until(f"the log tells of {what[:8]}", lambda: next(
            (line for line in server.log().splitlines() if address in line), None))

    http = say(b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n" + b" " * 64)
    check("warning rtrs.fabric.tcp" in http and "no connection: magic of a frame: found 'G' 'E', expected 'R' 'F'" in http, http)
    check("5 bytes came of a connect request, expected 32" in say(b"RF\x01\x00\x00", end=True), "what is cut off")
    h.pwrite(b"x" * 4096, 0)
    check(h.pread(4096, 0) == b"x" * 4096 and client.status()["sessions"][0]["paths"][0]["reconnects"] == 0, "nobody else is hurt")
    # Who only looks is no stranger.
    before = len(server.log())
    socket.create_connection(("127.0.0.1", server.port)).close()
    time.sleep(0.2)
    check(len(server.log()) == before, server.log()[before:])

    # The client tells likewise of a server.
    with socket.create_server(("127.0.0.1", 0)) as other:
        client.ctl("--timeout", "0.5", "paths", "add", "host-a", "127.0.0.1:%d" % other.getsockname()[1], ok=False)
        accepted, _ = other.accept()
        with accepted:
            accepted.sendall(b"SSH-2.0-somebody else's server, with more to say\r\n")
            wait_until("the client says so", lambda: "broke the protocol: magic of a frame: found 'S' 'S'" in client.log())
