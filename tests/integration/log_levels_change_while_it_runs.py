"""`rnbdctl log` shows and sets how much a daemon says, by area, while it runs."""
import re

from harness import *


def areas(daemon, *words):
    document = json.loads(daemon.ctl("--json", "log", *words).stdout)["result"]
    check(set(document) == {"daemon", "areas"}, f"members: {set(document)}")
    return {area["name"]: area["level"] for area in document["areas"]}


def debug_areas(daemon):
    return set(re.findall(r" debug +([\w.]+): ", daemon.log()))


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    client = lab.client(server, {"vol1": {}})
    path = f"127.0.0.1:{server.port}"
    before = areas(client)
    check(before and set(before.values()) == {"info"}, f"all are at info: {before}")
    check(not debug_areas(client), "nobody has said anything at debug")
    silent = "rnbd.kernel"
    check(silent in before and silent not in client.log(), "also what has said nothing so far")
    check(areas(client, "warning", silent)[silent] == "warning", "and its level can be set")
    areas(client, "info")

    after = areas(client, "debug", "rtrs")
    for name, level in after.items():
        check(level == ("debug" if name.startswith("rtrs.") else "info"), f"{name}: {level}")
    client.ctl("paths", "reconnect", "host-a", path)
    wait_until("the transport says more", lambda: debug_areas(client))
    check(all(name.startswith("rtrs.") for name in debug_areas(client)), f"{debug_areas(client)}")

    check(set(areas(client, "error").values()) == {"error"}, "all are at error")
    said = client.log()
    client.ctl("paths", "reconnect", "host-a", path)
    check(client.log() == said, f"nothing more was said: {client.log()[len(said):]}")
    check(set(areas(server).values()) == {"info"}, "the server goes on as before")
    check("rtrs.path" in server.ctl("log").stdout, "a table for people")

    wrong = client.ctl("log", "loud", ok=False)
    check(wrong.returncode == 2 and "expected debug, info, warning or error" in wrong.stderr, wrong)
    wrong = client.ctl("log", "debug", "nobody", ok=False)
    check(wrong.returncode == 4 and "nothing is logged as nobody" in wrong.stderr, wrong)
    print(f"{len(before)} areas of the client")
