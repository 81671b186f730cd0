"""Of two exports that may be written and have one uuid, as a file that was left behind when its content moved, the second one
waits and says why: neither's clients are taken for the other's. The uuid that is given counts before one that is found."""
from harness import *
from nbd_clients import *

BLOCK = 4096
OWN = "11111111-2222-4333-8444-555555555555"

with Lab() as lab:
    def exports():
        return {one["name"]: one for one in server.status()["exports"]}

    def export_states():
        return {name: one["state"] for name, one in exports().items()}

    def device(client):
        return client.status()["devices"][0]

    old = lab.random_file("old", 1 << 20)
    server = lab.server([export("vol", old)])
    host_a = lab.client(server, {"vol": {}})
    h = connected(lab, "vol")
    h.pwrite(b"a" * BLOCK, 0)
    h.flush()
    uuid = exports()["vol"]["uuid"]

    # The content moves. What was left behind is exported, too, and stands first in the file.
    server.kill()
    moved = lab.path("moved")
    shutil.copyfile(old, moved)

    def move(config):
        config["exports"][0].update(path=moved, uuid=uuid)
        config["exports"].insert(0, export("left-behind", old, session="host-b"))

    server.config_with(move)
    for _ in range(2):
        server.start()
        wait_until("the one that has its uuid by the configuration is ready", lambda: export_states()["vol"] == "ready")
        wait_until("the other one waits", lambda: "has the uuid" in exports()["left-behind"]["reason"])
        left = exports()["left-behind"]
        check(left["state"] == "waiting" and f"has the uuid {uuid}, as export vol has" in left["reason"], left)
        check("left-behind" in server.ctl("exports").stdout and "as export vol has" in server.ctl("exports").stdout,
              server.ctl("exports").stdout)
        h.pwrite(b"b" * BLOCK, 0)
        h.flush()
        server.kill()
    server.start()
    wait_until("vol is open", lambda: device(host_a)["state"] == "open")

    # One of its own makes it another.
    server.config_with(lambda config: config["exports"][0].update(uuid=OWN))
    server.ctl("config", "apply")
    wait_until("both are ready", lambda: set(export_states().values()) == {"ready"})
    host_b = lab.client(server, {"left-behind": {}}, name="b", session="host-b")
    other = connected(lab, "left-behind", "b")
    other.pwrite(b"o" * BLOCK, 0)
    other.flush()
    host_a.ctl("paths", "reconnect", "host-a", f"127.0.0.1:{server.port}")
    host_b.ctl("paths", "reconnect", "host-b", f"127.0.0.1:{server.port}")
    for handle, byte in ((h, b"c"), (other, b"p")):
        handle.pwrite(byte * BLOCK, 0)
        handle.flush()
    check(device(host_a)["state"] == device(host_b)["state"] == "open", "neither is kept out by what the other wrote")
    for path, byte in ((moved, b"c"), (old, b"p")):
        with open(path, "rb") as image:
            check(image.read(BLOCK) == byte * BLOCK, f"{path} has what was written to it")

    # Who only reads may have it beside the other one.
    other.shutdown()
    host_b.stop()

    def read_only(config):
        del config["exports"][0]["uuid"]
        config["exports"][0].update(read_only=True)
        config["exports"][0]["allow"][0]["access"] = "ro"

    server.config_with(read_only)
    server.ctl("config", "apply")
    wait_until("both are ready", lambda: set(export_states().values()) == {"ready"})
    check(exports()["left-behind"]["uuid"] == uuid, "with one uuid")

    # When the one that has it goes, it is free.
    server.config_with(lambda config: config["exports"][0].update(read_only=False))
    server.ctl("config", "apply")
    wait_until("it waits", lambda: export_states()["left-behind"] == "waiting")
    h.shutdown()
    host_a.stop()
    server.ctl("exports", "remove", "vol")
    wait_until("it waits no longer", lambda: export_states() == {"left-behind": "ready"})
