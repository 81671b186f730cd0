"""What rnbdctl makes at run time is drift, and is kept with --save: also over a restart."""
from configurations import *
from harness import *


def drift(daemon):
    return {f"{one['object']} {one['name']}": one["drift"]
            for one in config(daemon, "diff")[0]["objects"] if one["drift"]}


def sessions_go_with_their_devices(lab, server, client):
    """A session of the file leaves it with the last device there that is on it, unless another file names it."""
    server.ctl("exports", "add", "vol3", lab.path("vol3.img"), "--allow", "host-c=ro")
    server.ctl("exports", "add", "vol5", lab.path("vol5.img"), "--size", "1MiB", "--allow", "host-c=ro")

    def made(volume, name, *more):
        client.ctl("map", volume, "from", f"127.0.0.1:{server.port}", "--session", "host-c", "--name", name, "--ro", *more)

    def of(document, kind):
        return [one["name"] for one in document.get(kind, [])]

    # Two on it, and none of them was ever applied.
    made("vol3", "one", "--save")
    made("vol5", "two", "--save")
    first = client.ctl("unmap", "one", "--save").stdout
    check("session" not in first and of(saved(client), "sessions") == ["host-c"], (first, saved(client)))
    last = client.ctl("unmap", "two", "--save").stdout
    check("with session host-c" in last and "runs" not in last and saved(client) == {}, (last, saved(client)))
    check(config(client, "diff")[0]["state"] == "same", "nothing comes back")
    check(of(client.status(), "sessions") == ["host-a"], "nor is it there")

    # A device takes the place of one that was unmapped, on another session.
    made("vol3", "one", "--save")
    client.ctl("unmap", "one")
    client.ctl("map", "vol1", "from", "host-b", "--path", f"127.0.0.1:{server.port}", "--name", "one", "--ro", "--save")
    check(of(saved(client), "sessions") == ["host-b"], saved(client))
    client.ctl("unmap", "one", "--save")
    check(saved(client) == {}, saved(client))

    # The administrator says something of it.
    made("vol3", "one", "--save")
    hand = os.path.join(folder_of(client), "50-hand.yaml")
    with open(hand, "w") as out:
        out.write("amend:\n  - session: host-c\n    policy: round-robin\n")
    stays = client.ctl("unmap", "one", "--save").stdout
    check("session" not in stays and of(saved(client), "sessions") == ["host-c"], (stays, saved(client)))
    os.unlink(hand)

    # It runs for a device that was not kept.
    made("vol3", "one", "--save")
    check(config(client, "apply")[0]["state"] == "applied", "it is the files' session")
    made("vol5", "two")
    used = client.ctl("unmap", "one", "--save")
    check("refused as long as session host-c is in use: device two" in used.stderr and saved(client) == {}, used)
    check(config(client, "apply", ok=False)[0]["state"] == "refused", "as was said")
    client.ctl("unmap", "two")
    check(config(client, "apply")[0]["state"] == "applied", "nobody uses it")
    check(of(client.status(), "sessions") == ["host-a"], "it is gone")
    for name in ("vol3", "vol5"):
        server.ctl("exports", "remove", name)


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    client = lab.client(server, {"vol1": {}})

    # Not kept: shown as drift, and left alone by an apply.
    server.ctl("exports", "add", "vol2", lab.path("vol2.img"), "--size", "1MiB", "--allow", "host-a=rw")
    client.ctl("map", "vol2", "from", "host-a")
    client.ctl("policy", "host-a", "round-robin")
    check(drift(server) == {"export vol2": "made"}, drift(server))
    check(drift(client) == {"device vol2": "made", "session host-a": "changed"}, drift(client))
    check(config(server, "apply")[0]["state"] == "applied", "an apply")
    check([e["name"] for e in server.status()["exports"]] == ["vol1", "vol2"], "leaves it alone")
    check(saved(server) is None, "nothing was written")
    # What the files name is as they say.
    check(config(client, "apply")[0]["state"] == "applied", "an apply")
    check(client.status()["sessions"][0]["policy"] == "min-inflight", "as the file says")
    server.ctl("exports", "remove", "vol1", "--force")
    check(drift(server) == {"export vol1": "removed", "export vol2": "made"}, drift(server))
    config(server, "apply")
    wait_until("it is back", lambda: client.status()["devices"][0]["state"] == "open")

    # Kept.
    said = server.ctl("exports", "add", "vol3", lab.path("vol3.img"), "--size", "1MiB",
                      "--allow", "host-a=rw", "--allow", "host-c=ro", "--save").stdout
    check("90-rnbdctl.yaml" in said, said)
    check([e["name"] for e in saved(server)["exports"]] == ["vol3"], saved(server))
    check(drift(server) == {"export vol2": "made"}, drift(server))
    main, kept = (os.stat(path) for path in (
        server.config_path, os.path.join(folder_of(server), "90-rnbdctl.yaml")))
    check((main.st_uid, main.st_gid, main.st_mode & 0o777) == (kept.st_uid, kept.st_gid, kept.st_mode & 0o777),
          "who may read the configuration may read it")
    client.ctl("map", "vol3", "from", "host-a", "--name", "three", "--ro", "--save")
    client.ctl("map", "vol3", "from", f"127.0.0.1:{server.port}", "--session", "host-c", "--name", "again", "--ro", "--save")
    check([d["name"] for d in saved(client)["devices"]] == ["three", "again"], saved(client))
    check([s["name"] for s in saved(client)["sessions"]] == ["host-c"], saved(client))
    check(os.listdir(folder_of(client)) == ["90-rnbdctl.yaml"], "nothing else is left there")
    client.stop()
    server.stop()
    server.start()
    client.start()
    wait_until("everything is back", lambda: {d["name"]: d["state"] for d in client.status()["devices"]} == {
        "vol1": "open", "three": "open", "again": "open"})
    check({e["name"] for e in server.status()["exports"]} == {"vol1", "vol3"}, "vol2 was not kept")

    # By its address, where another file has that session: the file gets the device alone.
    server.ctl("exports", "add", "vol5", lab.path("vol5.img"), "--size", "1MiB", "--allow", "host-a=rw")
    client.ctl("map", "vol5", "from", f"127.0.0.1:{server.port}", "--session", "host-a", "--name", "five", "--save")
    check([d["name"] for d in saved(client)["devices"]] == ["three", "again", "five"], saved(client))
    check([s["name"] for s in saved(client)["sessions"]] == ["host-c"], saved(client))
    client.ctl("unmap", "five", "--save")
    server.ctl("exports", "remove", "vol5")

    # Forgotten again.
    said = client.ctl("unmap", "again", "--save").stdout
    check([d["name"] for d in saved(client)["devices"]] == ["three"], saved(client))
    check("sessions" not in saved(client) and "host-c, which no file names any more; it runs until" in said, said)
    check(changes(config(client, "diff")[0]) == {"session host-c": "removed"}, "it is of the files that were applied")
    check(config(client, "apply")[0]["state"] == "applied", "and goes")
    check([s["name"] for s in client.status()["sessions"]] == ["host-a"], "with the next apply")
    client.ctl("unmap", "three", "--save")
    check(saved(client) == {}, saved(client))
    server.ctl("exports", "remove", "vol3", "--force", "--save")
    check(saved(server) == {}, saved(server))
    sessions_go_with_their_devices(lab, server, client)

    # Several at a time: what one keeps, no other forgets.
    names = [f"many{i}" for i in range(12)]
    rnbdctl = os.path.join(BUILD, "rnbdctl", "rnbdctl")
    saving = [subprocess.Popen([rnbdctl, "--socket", server.control, "exports", "add", name, lab.path(name),
                                "--size", "1MiB", "--save"], stdout=subprocess.DEVNULL) for name in names]
    for one in saving:
        check(one.wait() == 0, one.args)
    check(sorted(e["name"] for e in saved(server)["exports"]) == sorted(names), saved(server))
    check(os.listdir(folder_of(server)) == ["90-rnbdctl.yaml"], "nothing else is left there")
    for name in names:
        server.ctl("exports", "remove", name, "--save")
    check(saved(server) == {}, saved(server))

    answer = json.loads(server.ctl("--json", "exports", "add", "vol4", lab.path("vol4.img"), "--save").stdout)
    check(answer["ok"] and answer["saved"]["changed"] and answer["saved"]["file"].endswith("90-rnbdctl.yaml"), answer)
    server.ctl("exports", "remove", "vol4", "--save")
    # An administrator's link stays, and what it leads to is written.
    own, elsewhere = os.path.join(folder_of(server), "90-rnbdctl.yaml"), lab.path("elsewhere.yaml")
    os.rename(own, elsewhere)
    os.symlink(elsewhere, own)
    server.ctl("exports", "add", "vol4", lab.path("vol4.img"), "--save")
    check(os.readlink(own) == elsewhere, "it is the same link")
    check([one["name"] for one in saved(server)["exports"]] == ["vol4"], saved(server))
    server.ctl("exports", "remove", "vol4", "--save")
    check(os.readlink(own) == elsewhere and saved(server) == {}, saved(server))
    os.unlink(elsewhere)
    nowhere = server.ctl("exports", "add", "vol4", lab.path("vol4.img"), "--save", ok=False)
    check(nowhere.returncode == 1 and "where the link leads: No such file" in nowhere.stderr, nowhere.stderr)
    check(os.readlink(own) == elsewhere, "it is not replaced")
    server.ctl("exports", "remove", "vol4")
    os.unlink(own)

    # What the daemon could not read at its next start is not kept.
    with open(server.config_path) as text:
        files = json.load(text)
    del files["control"]
    files["exports"].append(export("vol4", lab.path("vol4.img"), "1MiB"))
    write_config(server, files, {})
    refused = server.ctl("exports", "add", "vol4", lab.path("vol4.img"), "--allow", "host-a=rw", "--save", ok=False)
    check(refused.returncode == 1 and "not kept" in refused.stderr and "a second time" in refused.stderr,
          refused.stderr)
    check(saved(server) is None, "the file is as it was")
    server.ctl("exports", "remove", "vol4")
    as_json = server.ctl("--json", "exports", "add", "vol4", lab.path("vol4.img"), "--save", ok=False)
    answer = json.loads(as_json.stdout)
    check(as_json.returncode == 1 and not answer["ok"] and answer["error"]["code"] == "failed", as_json)
    check("not kept" in answer["error"]["message"] and answer["result"]["export"] == "vol4", answer)
    with open(own, "w") as out:
        out.write("exports:\n  - name: by-hand\n    storage: {kind: memory, size: 1MiB}\n")
    by_hand = server.ctl("exports", "remove", "vol4", "--save", ok=False)
    check(by_hand.returncode == 1 and "not as rnbdctl writes it" in by_hand.stderr, by_hand.stderr)
    with open(own) as text:
        check("by-hand" in text.read(), "it is not touched")
