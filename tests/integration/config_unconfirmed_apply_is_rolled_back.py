"""What config apply --confirm-within changed is taken back by the daemon, also if nobody is connected."""
from configurations import *
from harness import *
from multipath_lab import Judge


def served(server):
    return {e["name"]: (e["path"], [(rule["session"], rule["access"]) for rule in e["allow"]])
            for e in server.status()["exports"]}


def mapped(client):
    status = client.status()
    return ({d["name"]: (d["volume"], d["access"]) for d in status["devices"]},
            {s["name"]: (s["policy"], sorted(p["label"] for p in s["paths"])) for s in status["sessions"]})


def apply_and_vanish(daemon, seconds):
    """Asks for it and cuts the connection before there can be an answer."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(daemon.control)
        control.sendall(json.dumps({"command": "config_apply", "arguments": {
            "confirm_within_s": seconds, "force": True}}).encode() + b"\n")


def rolled_back(daemon, picture, seconds, logged):
    before, since = picture(daemon), len(daemon.log())
    apply_and_vanish(daemon, seconds)
    wait_until("it was done and taken back", lambda: all(
        words in daemon.log()[since:] for words in logged + ["the change is taken back"]))
    wait_until("it is as it was", lambda: picture(daemon) == before)
    log = daemon.log()[since:]
    check("which failed" not in log, log)


with Lab() as lab:
    exports = [export(name, lab.path(f"{name}.img"), "64MiB") for name in ("vol1", "vol2", "vol3")]
    server = lab.server(exports, heartbeat=PATIENT["heartbeat"])
    client = lab.client(server, {"vol1": {}, "vol2": {}, "vol3": {}}, session_options=PATIENT)
    judge = Judge(lab, lab.uri("vol1"), blocks=512)
    session = server.status()["sessions"][0]["id"]
    listen = [{"tcp": f"127.0.0.1:{server.port}"}]

    # Added, removed although it is open, changed, replaced: each comes back.
    other = free_port()
    changed = dict(exports[1], allow=[{"session": "host-a", "access": "rw"}, {"session": "host-z", "access": "ro"}])
    edited = [exports[0], changed, export("vol4", lab.path("vol4.img"), "1MiB")]
    write_config(server, {"listen": listen + [{"tcp": f"127.0.0.1:{other}"}], "exports": edited,
                          "heartbeat": PATIENT["heartbeat"]})
    rolled_back(server, served, 1, ["export vol4: added", "export vol3: removed", "export vol2: changed (allow)",
                                    f"listener tcp 127.0.0.1:{other}: added"])
    check(len(server.status()["listen"]) == 1, "the listener is gone again")
    document, code = config(server, "diff")
    check(document["state"] == "differs" and changes(document)["export vol4"] == "added", document)
    wait_until("the client has it open again", lambda: all(
        d["state"] == "open" for d in client.status()["devices"]))

    # Confirmed, it stays; until then nothing else is applied.
    document, _ = config(server, "apply", "--force", "--confirm-within", "1h")
    check(document["state"] == "applied" and 0 < document["confirm_left_s"] <= 3600, document)
    check(config(server, "diff")[0]["confirm_left_s"] > 0, "the diff says so, too")
    check(server.ctl("config", "apply", ok=False).returncode == 5, "one at a time")
    check("not read again" in reload(server), "also by a signal")
    check(config(server, "confirm")[0]["state"] == "confirmed", "confirmed")
    check(server.ctl("config", "confirm", ok=False).returncode == 4, "once")
    check(set(served(server)) == {"vol1", "vol2", "vol4"}, "it stays")
    check(config(server, "diff")[0]["state"] == "same", "as the files say")

    # What changes nothing waits for nothing.
    document, _ = config(server, "apply", "--confirm-within", "1h")
    check(document["state"] == "applied" and document["confirm_left_s"] is None, document)
    check(config(server, "apply")[0]["state"] == "applied", "it is in nobody's way")

    # The time counts from when all is done: here a listener waits longer for an address that another one has. That is
    # two seconds: what is asked meanwhile is asked without rnbdctl, several of which may take longer.
    holder = socket.socket()
    lab.cleanups.append(holder.close)
    holder.bind(("127.0.0.1", 0))
    holder.listen()
    server.config_with(lambda config: (
        config["listen"].append({"tcp": "127.0.0.1:%d" % holder.getsockname()[1]}),
        config["exports"].append(export("vol5", lab.path("vol5.img"), "1MiB"))))
    since = len(server.log())
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(server.control)
        control.sendall(json.dumps({"command": "config_apply", "arguments": {
            "confirm_within_s": 0.5}}).encode() + b"\n")
        early = wait_until("it has begun", lambda: (
            lambda said: said if said["code"] == "busy" else None)(server.answer("config_confirm")["error"]))
        check("when it is done" in early["message"], early)
        early = server.answer("config_apply")["error"]
        check(early["code"] == "busy" and "under way" in early["message"], early)
        document = json.loads(control.makefile().readline())["result"]
    check(document["state"] == "incomplete" and document["confirm_left_s"] > 0, document)
    wait_until("it is taken back", lambda: "export vol5: removed" in server.log()[since:])
    check("export vol5: added" in server.log()[since:], server.log()[since:])
    server.config_with(lambda config: (config["listen"].pop(), config["exports"].pop()))

    wrong = server.ctl("config", "apply", "--confirm-within", "soon", ok=False)
    check(wrong.returncode == 2 and "5min" in wrong.stderr, wrong.stderr)

    # The client: devices and a session come and go, one is replaced although it is used.
    user = subprocess.Popen(["nbdsh", "-u", lab.uri("vol2"), "-c", "import time; time.sleep(600)"]) \
        if shutil.which("nbdsh") else None
    if user:
        lab.cleanups.append(user.kill)
        wait_until("somebody uses vol2", lambda: next(
            d for d in client.status()["devices"] if d["name"] == "vol2")["connections"] > 0)
    here = {"name": "host-a", "paths": [{"tcp": f"127.0.0.1:{server.port}"}], **PATIENT}
    devices = [{"name": name, "session": "host-a", "volume": name, "access": "rw",
                "nbd": f"unix:{lab.socket('client', name)}"} for name in ("vol1", "vol2", "vol4")]
    devices[1]["access"] = "ro"
    second = {"name": "host-b", "paths": [{"tcp": f"127.0.0.1:{other}"}]}
    third = {"name": "in-b", "session": "host-b", "volume": "vol9", "access": "ro", "nbd": f"unix:{lab.path('b.sock')}"}
    write_config(client, {"sessions": [dict(here, policy="round-robin", paths=here["paths"] + [
        {"tcp": f"127.0.0.1:{other}"}]), second], "devices": devices + [third]})
    rolled_back(client, mapped, 1, [
        "session host-a: changed (policy)", f"path host-a 127.0.0.1:{other}: added", "session host-b: added",
        "device vol2: replaced (access)", "device vol3: removed", "device vol4: added", "device in-b: added"])
    if user:
        user.kill()
        user.wait()

    check(server.status()["sessions"][0]["id"] == session, "the session is the same")
    judge.wait_for_progress()
    judge.finish()
    vol1 = next(d for d in client.status()["devices"] if d["name"] == "vol1")
    check(vol1["errors"] == 0, "no request of vol1 failed")
