"""A wrong name, a session that is not allowed, a second writer, an export that waits: refused, named, and tried again.

Who says nothing at all is not waited for for ever, and how long still is told.
"""
from harness import *

need("nbdinfo")


def reason(client, device):
    return next(d for d in client.status()["devices"] if d["name"] == device)["reason"]


def refused(client, device, word):
    wait_until(f"{device} is refused with {word!r}", lambda: word in reason(client, device))


with Lab() as lab:
    server = lab.server([
        export("vol1", lab.path("vol1.img"), "1MiB"),
        export("readers", lab.path("readers.img"), "1MiB", access="ro"),
        export("far", lab.path("far.img"), "1MiB") | {
            "allow": [{"session": "host-a", "address": "192.0.2.0/24", "access": "rw"}]},
        export("waiting", lab.path("late.img")),
        export("moves", lab.path("moves.img"), "1MiB"),
    ])
    first = lab.client(server, {"vol1": {}})
    second = lab.client(server, {
        "absent": {}, "vol1": {}, "readers": {}, "far": {}, "waiting": {},
    }, name="second", session="host-b", wait_for_devices=False)
    refused(second, "absent", "(no such export)")
    wait_until("it says when it asks again", lambda: (second.status()["devices"][0]["next_attempt_s"] or 0) > 0)
    for device in ("vol1", "readers", "far", "waiting"):
        refused(second, device, "allow list")
    check("no export has this name" in server.log(), "the server's log tells why")
    check("no allow entry" in server.log(), "the server's log tells who was denied")
    # What is not open cannot be used, and says so instead of hanging.
    info = run("nbdinfo", lab.uri("absent", "second"), ok=False)
    check(info.returncode != 0, "an NBD client is turned away")
    second.stop()

    other = lab.client(server, {"readers": {}, "far": {}, "waiting": {}, "again": {"volume": "vol1"}},
                       name="other", session="host-c", wait_for_devices=False)
    refused(other, "again", "allow list")
    other.stop()

    # The same session from elsewhere, and access modes.
    check(first.status()["devices"][0]["next_attempt_s"] is None, "an open one is not asked for")
    check(first.stop() == 0, "clean end")
    third = lab.client(server, {"far": {}, "readers": {}, "waiting": {}, "vol1": {}, "moves": {"access": "migration"}},
                       name="third", wait_for_devices=False)
    refused(third, "far", "allow list")
    refused(third, "readers", "(its allow list does not have this session, or only lets it read)")
    refused(third, "moves", "(its allow list does not have this session, or not with access migration)")
    refused(third, "waiting", "(the export waits for its storage)")
    with open(lab.path("late.img"), "wb") as late:
        late.truncate(1 << 20)
    wait_until("the file that came late is served", lambda: reason(third, "waiting") == "")
    check(reason(third, "vol1") == "", "the rest is open")

    # Somebody who takes connections, and says nothing.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        fourth = Daemon(lab, "rnbd-client", "fourth", {"devices": [], "sessions": [{
            "name": "host-d", "connect_timeout": "60s", "paths": [{"tcp": "127.0.0.1:%d" % silent.getsockname()[1]}]}]})
        lab.daemons.append(fourth)
        fourth.start()

        def path():
            return fourth.status()["sessions"][0]["paths"][0]

        trying = wait_until("it says when it gives up", lambda: next(
            (one for one in [path()] if 0 < (one["gives_up_s"] or 0) <= 3), None))
        check(trying["next_attempt_s"] is None, f"this attempt is the one: {trying}")
        wait_until("in words", lambda: "given up in " in fourth.ctl("paths").stdout)
        fourth.stop()
