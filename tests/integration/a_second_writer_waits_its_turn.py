"""One writer; a second one is refused with EPERM and gets the volume when the first has gone; migration allows two."""
from harness import *


def state(client, device):
    return next(d for d in client.status()["devices"] if d["name"] == device)


with Lab() as lab:
    allow = [{"session": name, "access": "migration"} for name in ("host-a", "host-b", "host-c")]
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB") | {"allow": allow}])
    first = lab.client(server, {"vol1": {}}, name="first", session="host-a")
    second = lab.client(server, {"vol1": {}}, name="second", session="host-b",
                        wait_for_devices=False)
    wait_until("the second writer is refused",
               lambda: "open for writing elsewhere" in state(second, "vol1")["reason"])
    # That the file is away for a moment is no end of the first one's turn.
    for _ in range(3):
        os.rename(lab.path("vol1.img"), lab.path("aside"))
        wait_until("the first one hears of it", lambda: "storage is gone" in state(first, "vol1")["reason"])
        os.rename(lab.path("aside"), lab.path("vol1.img"))
        wait_until("the first one has it again", lambda: state(first, "vol1")["reason"] == "")
        check(state(first, "vol1")["state"] == "open" and state(second, "vol1")["state"] == "opening", "as before")
    reader = lab.client(server, {"vol1": {"access": "ro"}}, name="reader", session="host-c")
    reader.stop()
    migrating = lab.client(server, {"vol1": {"access": "migration"}}, name="migrating",
                           session="host-c")
    migrating.stop()
    first.stop()
    wait_until("the second writer has it now", lambda: state(second, "vol1")["state"] == "open")

    # One process per volume: a second server waits for the first one's lock.
    rival = lab.server([export("vol1", lab.path("vol1.img"))], name="rival")
    wait_until("the rival waits", lambda: rival.status()["exports"][0]["state"] == "waiting")
    check("lock" in rival.status()["exports"][0]["reason"], rival.status()["exports"][0]["reason"])
    second.stop()
    server.stop()
    wait_until("the rival serves", lambda: rival.status()["exports"][0]["state"] == "ready")
