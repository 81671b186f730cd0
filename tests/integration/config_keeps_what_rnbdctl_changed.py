"""--save keeps a policy, paths and a size of what other files name, over a restart; and writes nothing that the daemon would refuse."""
from configurations import *
from harness import *


def session(client):
    return client.status()["sessions"][0]


def paths(client):
    return {p["label"]: p["priority"] for p in session(client)["paths"]}


def same_as_files(daemon):
    document = config(daemon, "diff")[0]
    check(document["state"] == "same", document)


def nothing_to_warn_of(daemon):
    document = config(daemon, "check")[0]
    check(document["state"] == "good" and not document["warnings"], document)


def all_open(client):
    wait_until("the device is open", lambda: client.status()["devices"][0]["state"] == "open")


def a_policy_and_paths(lab, server, client):
    first, second, third = (f"127.0.0.{n}:{server.port}" for n in (1, 2, 3))
    said = client.ctl("policy", "host-a", "round-robin", "--save").stdout
    check("kept in" in said and "90-rnbdctl.yaml" in said, said)
    client.ctl("paths", "add", "host-a", second, "--save")
    client.ctl("paths", "add", "host-a", third, "--priority", "standby", "--save")
    client.ctl("paths", "remove", "host-a", first, "--save")
    check(saved(client) == {"amend": [{
        "session": "host-a", "policy": "round-robin", "remove_paths": [first],
        "add_paths": [{"tcp": second}, {"tcp": third, "priority": "standby"}]}]}, saved(client))
    same_as_files(client)
    client.stop()
    client.start()
    all_open(client)
    check(paths(client) == {second: "prefer", third: "standby"}, paths(client))
    check(session(client)["policy"] == "round-robin", "the policy")
    same_as_files(client)

    # Back again: what is added is removed no longer.
    client.ctl("paths", "add", "host-a", first, "--save")
    client.ctl("paths", "remove", "host-a", third, "--save")
    check(saved(client)["amend"] == [{
        "session": "host-a", "policy": "round-robin", "remove_paths": [third],
        "add_paths": [{"tcp": second}, {"tcp": first}]}], saved(client))
    client.stop()
    client.start()
    all_open(client)
    check(paths(client) == {first: "prefer", second: "prefer"}, paths(client))

    # What is refused is not kept, nor is what would leave the files without a path.
    before = saved(client)
    for words in (("paths", "add", "host-a", first), ("paths", "remove", "host-a", third),
                  ("policy", "host-b", "round-robin")):
        check(client.ctl(*words, "--save", ok=False).returncode != 0, words)
    check(client.ctl("paths", "reconnect", "host-a", first, "--save", ok=False).returncode == 2, "usage")
    check(saved(client) == before, saved(client))

    # What was removed without --save is taken out of the files later.
    client.ctl("paths", "remove", "host-a", second)
    said = client.ctl("paths", "remove", "host-a", "tcp:" + second, "--save").stdout
    check("has no path" in said and "kept in" in said, said)
    check(second in saved(client)["amend"][0]["remove_paths"], saved(client))
    same_as_files(client)
    client.ctl("paths", "add", "host-a", second, "--save")
    check(saved(client)["amend"][0]["remove_paths"] == [third], saved(client))
    client.ctl("paths", "add", "host-a", third)
    client.ctl("paths", "remove", "host-a", second, "--save")
    left = client.ctl("paths", "remove", "host-a", first, "--save", ok=False)
    check(left.returncode == 1 and "not kept" in left.stderr and "0 paths left" in left.stderr, left.stderr)
    check(paths(client) == {third: "prefer"}, "it is done all the same")
    check(saved(client)["amend"][0]["add_paths"] == [{"tcp": first}], saved(client))
    check(config(client, "check")[0]["state"] == "good", "the files are good")


def a_size(lab, server, client):
    server.ctl("exports", "resize", "vol1", "2MiB", "--save")
    check(saved(server) == {"amend": [{"export": "vol1", "size": 2 << 20}]}, saved(server))
    server.ctl("exports", "resize", "vol1", "3MiB", "--save")
    check(saved(server) == {"amend": [{"export": "vol1", "size": 3 << 20}]}, saved(server))
    same_as_files(server)
    nothing_to_warn_of(server)
    # Who gives it another size where it is described is told that it does not count, until that is applied.
    server.config_with(lambda config: config["exports"][0].update(size="7MiB"))
    for word in ("check", "diff", "apply"):
        told = config(server, word)[0]["warnings"]
        check(len(told) == 1 and "3145728 bytes, which count, not the 7340032" in told[0]["text"], told)
    nothing_to_warn_of(server)
    server.stop()
    # Another machine with the same configuration: the file is created with that size.
    os.rename(lab.path("vol1.img"), lab.path("elsewhere.img"))
    server.start()
    size = lambda: server.status()["exports"][0]["size_bytes"]
    check(size() == 3 << 20, "it is as large")
    nothing_to_warn_of(server)
    server.ctl("exports", "resize", "vol1", "1MiB", "--shrink", "--save")
    check(saved(server) == {"amend": [{"export": "vol1", "size": 1 << 20}]} and size() == 1 << 20, "smaller")
    same_as_files(server)
    for words in (("vol1", "--save"), ("vol1", "1MiB", "--shrink", "--save", "--off")):
        check(server.ctl("exports", "resize", *words, ok=False).returncode == 2, words)

    # One of this very file is changed there.
    server.ctl("exports", "add", "vol2", lab.path("vol2.img"), "--size", "1MiB", "--allow", "host-a=rw", "--save")
    server.ctl("exports", "resize", "vol2", "2MiB", "--save")
    check([one["size"] for one in saved(server)["exports"]] == [2 << 20], saved(server))
    check(saved(server)["amend"] == [{"export": "vol1", "size": 1 << 20}], saved(server))
    nothing_to_warn_of(server)
    same_as_files(server)
    # But what another file amends would count over that.
    hand = os.path.join(folder_of(server), "50-hand.yaml")
    with open(hand, "w") as out:
        out.write("amend: [{export: vol2, size: 2MiB}]\n")
    server.ctl("exports", "resize", "vol2", "3MiB", "--save")
    check([one["export"] for one in saved(server)["amend"]] == ["vol1", "vol2"], saved(server))
    same_as_files(server)
    os.unlink(hand)
    server.ctl("exports", "resize", "vol2", "4MiB", "--save")
    check([one["size"] for one in saved(server)["exports"]] == [4 << 20], saved(server))
    nothing_to_warn_of(server)
    server.ctl("exports", "remove", "vol2", "--save")
    check(saved(server) == {"amend": [{"export": "vol1", "size": 1 << 20}]}, saved(server))

    # What was left of a former one is nothing of a new one of that name.
    vol3 = export("vol3", lab.path("vol3.img"), "1MiB")
    server.config_with(lambda config: config["exports"].append(vol3))
    config(server, "apply")
    server.ctl("exports", "resize", "vol3", "2MiB", "--save")
    server.config_with(lambda config: config["exports"].remove(vol3))
    config(server, "apply")
    server.ctl("exports", "add", "vol3", lab.path("new3.img"), "--size", "1MiB", "--save")
    config(server, "apply")
    check([e["size_bytes"] for e in server.status()["exports"]] == [1 << 20, 1 << 20], server.status()["exports"])
    server.ctl("exports", "remove", "vol3", "--save")
    check(saved(server) == {"amend": [{"export": "vol1", "size": 1 << 20}]}, saved(server))


def a_session_of_rnbdctl(lab, server, client):
    """A session that --save has made is changed where it stands, and goes with its devices, whatever was done to it."""
    first, second, third = (f"127.0.0.{n}:{server.port}" for n in (1, 2, 3))
    before = saved(client)
    server.ctl("exports", "add", "made", lab.path("own.img"), "--size", "1MiB", "--allow", "host-o=rw")
    server.ctl("exports", "add", "more", lab.path("more.img"), "--size", "1MiB", "--allow", "host-o=rw")

    def kept():
        check(saved(client)["amend"] == before["amend"], saved(client))
        nothing_to_warn_of(client)
        return saved(client)["sessions"]

    client.ctl("map", "made", "from", first, "--session", "host-o", "--name", "made", "--save")
    client.ctl("policy", "host-o", "round-robin", "--save")
    client.ctl("paths", "add", "host-o", second, "--priority", "standby", "--save")
    client.ctl("paths", "add", "host-o", third, "--save")
    client.ctl("paths", "remove", "host-o", first, "--save")
    changed = {"name": "host-o", "policy": "round-robin",
               "paths": [{"tcp": second, "priority": "standby"}, {"tcp": third}]}
    check(kept() == [changed], saved(client))
    client.ctl("map", "more", "from", third, "--path", second, "--session", "host-o", "--save")
    check(kept() == [changed], saved(client))
    differing = changes(config(client, "diff")[0])
    check(not [name for name in differing if "host-o" in name], differing)
    # The last path that the files have.
    client.ctl("paths", "add", "host-o", first)
    client.ctl("paths", "remove", "host-o", second, "--save")
    left = client.ctl("paths", "remove", "host-o", third, "--save", ok=False)
    check(left.returncode == 1 and "not kept" in left.stderr and "paths" in left.stderr, left.stderr)
    check(kept() == [dict(changed, paths=[{"tcp": third}])], saved(client))
    client.ctl("unmap", "made", "--save")
    client.ctl("unmap", "more", "--save")
    check(saved(client) == before, saved(client))
    for name in ("made", "more"):
        server.ctl("exports", "remove", name)


def what_is_wrong(lab, server, client):
    """The daemon refuses it at once, and says where; what is of something that is no more is passed over, aloud."""
    for daemon, element, word in ((client, {"session": "host-x"}, "no session of any file"),
                                  (server, {"export": "vol9", "size": 4096}, "no export of any file"),
                                  (server, {"export": "vol1", "size": 1000}, "multiple of the block size"),
                                  (client, {"session": "host-a", "remove_paths": ["x"]}, "remove_paths[0]")):
        with open(os.path.join(folder_of(daemon), "50-hand.yaml"), "w") as out:
            json.dump({"amend": [element]}, out)
        document = config(daemon, "check", ok=False)[0]
        told = document["warnings" if "of any file" in word else "errors"]
        check(len(document["errors"] + document["warnings"]) == 1 and word in str(told) and
              "50-hand.yaml" in str(told), document)
        os.unlink(os.path.join(folder_of(daemon), "50-hand.yaml"))


def what_no_file_has(lab, server, client):
    """A change of what no file has is not kept: the next start would have nothing to change."""
    server.ctl("exports", "add", "made", lab.path("made.img"), "--size", "1MiB", "--allow", "host-m=rw")
    client.ctl("map", "made", "from", f"127.0.0.1:{server.port}", "--session", "host-m", "--name", "made")
    wait_until("it is open", lambda: all(d["state"] == "open" for d in client.status()["devices"]))
    for daemon, words, what in (
            (server, ("exports", "resize", "made", "2MiB"), "export made"),
            (client, ("policy", "host-m", "round-robin"), "session host-m"),
            (client, ("paths", "add", "host-m", f"127.0.0.2:{server.port}"), "session host-m"),
            (client, ("paths", "remove", "host-m", f"127.0.0.2:{server.port}"), "session host-m")):
        before = saved(daemon)
        done = daemon.ctl(*words, "--save", ok=False)
        check(done.returncode == 1 and f"not kept: {what} is in no file" in done.stderr, done)
        check("kept in" not in done.stdout and saved(daemon) == before, (done, saved(daemon)))
    sizes = {e["name"]: e["size_bytes"] for e in server.status()["exports"]}
    check(sizes["made"] == 2 << 20, "it is done all the same")
    client.ctl("unmap", "made")
    server.ctl("exports", "remove", "made")


def what_goes_elsewhere(lab, server, client):
    """Of what another file has nothing stays here when it goes; that it comes back is said. A path is kept that is not
    up yet."""
    gone = server.ctl("exports", "remove", "vol1", "--force", "--save")
    check("comes back" in gone.stderr and "amend" not in saved(server), (gone, saved(server)))
    server.config_with(lambda config: config["exports"].clear())
    check(server.stop() == 0, "it ends")
    server.start()
    check(server.status()["exports"] == [], "what is gone everywhere is gone")
    path = f"127.0.0.1:{free_port()}"
    late = client.ctl("paths", "add", "host-a", path, "--timeout", "0.1", "--save", ok=False)
    check(late.returncode == 7 and {"tcp": path} in saved(client)["amend"][0]["add_paths"], (late, saved(client)))


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")], host="0.0.0.0")
    client = lab.client(server, {"vol1": {}})
    a_policy_and_paths(lab, server, client)
    a_size(lab, server, client)
    a_session_of_rnbdctl(lab, server, client)
    what_is_wrong(lab, server, client)
    what_no_file_has(lab, server, client)
    what_goes_elsewhere(lab, server, client)
