"""A change that is not confirmed is taken back by itself: what rnbdctl has done since stays as it is, also to the objects that
were changed, and a file that somebody else has by then is taken from nobody."""
from configurations import *
from harness import *


def paths(server):
    return {e["name"]: os.path.basename(e["path"]) for e in server.status()["exports"]}


def taken_back(daemon, meanwhile):
    """Applies the files, does that, and gives what is logged when the time is over."""
    since = len(daemon.log())
    # Enough for several times as many as there are of rnbdctl in it, as long as one takes on this machine now.
    begun = time.monotonic()
    daemon.status()
    seconds = 10 + 40 * (time.monotonic() - begun)
    document, _ = config(daemon, "apply", "--force", "--confirm-within", f"{seconds:.0f}s")
    check(document["state"] == "applied", document)
    meanwhile()
    check("the change is taken back" not in daemon.log()[since:], "it was done in time")

    def over():
        _, back, text = daemon.log()[since:].partition("the change is taken back")
        return text if back and "configuration: applied" in text else None
    return wait_until("it is taken back", over)


def of_a_server(lab, server, exports):
    listen = [{"tcp": f"127.0.0.1:{server.port}"}]

    def add(name, file, *words):
        server.ctl("exports", "add", name, lab.path(file), "--size", "2MiB", "--allow", "host-a=rw", *words)

    # A change of something else: nothing of it is undone.
    def others():
        server.ctl("exports", "remove", "vol2")
        write_config(server, {"listen": listen, "exports": exports[:1] + exports[2:], "log": {"level": "debug"}})
        add("vol2", "new.img", "--save")
        server.ctl("exports", "remove", "vol3", "--force")
        add("vol9", "vol9.img")
    write_config(server, {"listen": listen, "exports": exports, "log": {"level": "debug"}})
    text = taken_back(server, others)
    check("export" not in text.replace("exports", ""), text)
    check(paths(server) == {"vol1": "vol1.img", "vol2": "new.img", "vol9": "vol9.img"}, paths(server))
    server.ctl("exports", "remove", "vol2", "--save", "--force")
    server.ctl("exports", "remove", "vol9")

    # Of what was changed: vol1 goes back, vol2 and vol4 are rnbdctl's by now, and so is the file of vol3.
    write_config(server, {"listen": listen, "exports": exports})
    config(server, "apply", "--force")

    def of_them():
        server.ctl("exports", "remove", "vol2", "--force")
        add("vol2", "new.img")
        server.ctl("exports", "remove", "vol4")
        add("vol4", "new4.img")
        add("thief", "vol3.img")
    added = [export(name, lab.path(f"{name}.img"), "1MiB") for name in ("vol4", "vol5")]
    write_config(server, {"listen": listen, "exports": [
        dict(one, path=lab.path(f"other-{one['name']}.img")) for one in exports] + added})
    text = taken_back(server, of_them)
    check(paths(server) == {"vol1": "vol1.img", "vol2": "new.img", "vol3": "other-vol3.img", "vol4": "new4.img",
                            "thief": "vol3.img"}, paths(server))
    for name in ("vol2", "vol4"):
        check(f"export {name}: changed by rnbdctl since, and stays as it is" in text, text)
    check("export thief has" in text, text)
    server.ctl("exports", "remove", "thief")
    server.ctl("exports", "remove", "vol4")


def of_a_client(lab, server, client):
    here = f"127.0.0.1:{server.port}"
    devices = [{"name": name, "session": "host-a", "volume": name, "access": "ro",
                "nbd": f"unix:{lab.socket('client', name)}"} for name in ("vol1", "vol2")]
    session = {"name": "host-a", "paths": [{"tcp": here}]}

    def names():
        status = client.status()
        return {d["name"] for d in status["devices"]}, {s["name"] for s in status["sessions"]}

    def meanwhile():
        client.ctl("unmap", "vol2")
        client.ctl("map", "vol3", "from", "host-a", "--ro")
        client.ctl("map", "vol2", "from", "host-b", "--name", "in-b", "--ro")
        client.ctl("policy", "host-a", "round-robin")
        client.ctl("paths", "add", "host-a", f"127.0.0.2:{server.port}")
    write_config(client, {"sessions": [session, *(
        {"name": name, "paths": [{"tcp": here}]} for name in ("host-b", "host-c"))], "devices": devices})
    text = taken_back(client, meanwhile)
    check(names() == ({"vol1", "vol3", "in-b"}, {"host-a", "host-b"}), names())
    now = {s["name"]: s for s in client.status()["sessions"]}["host-a"]
    check(now["policy"] == "round-robin" and len(now["paths"]) == 2, now)
    check(next(d for d in client.status()["devices"] if d["name"] == "vol1")["access"] == "rw", "vol1 is as before")
    check("session host-b: changed by rnbdctl since" in text, text)
    check("failed" not in text, text)


with Lab() as lab:
    exports = [export(name, lab.path(f"{name}.img"), "2MiB") for name in ("vol1", "vol2", "vol3")]
    server = lab.server(exports)
    of_a_server(lab, server, exports)
    write_config(server, {"listen": [{"tcp": f"127.0.0.{n}:{server.port}"} for n in (1, 2)], "exports": [
        dict(one, allow=[{"session": name, "access": "rw"} for name in ("host-a", "host-b", "host-c")])
        for one in exports]})
    config(server, "apply", "--force")
    client = lab.client(server, {"vol1": {}, "vol2": {}})
    of_a_client(lab, server, client)
