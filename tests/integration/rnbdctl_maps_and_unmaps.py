"""rnbdctl map, list, status, unmap on a running client; exit codes and JSON."""
import re

from harness import *



def answers(daemon, requests):
    """Of requests that come one right behind the other."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(daemon.control)
        control.sendall(b"".join(json.dumps({"command": command, "arguments": arguments}).encode() + b"\n"
                                 for command, arguments in requests))
        lines = control.makefile()
        return [json.loads(lines.readline()) for _ in requests]


need("nbdinfo")
with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB"),
                         export("vol2", lab.path("vol2.img"), "2MiB"),
                         export("dir/vol3", lab.path("vol3.img"), "3MiB")])
    client = lab.client(server, {"vol1": {}})
    socket_path = lab.path("mapped.sock")
    client.ctl("map", "vol2", "--session", "host-a", "--name", "second", "--nbd",
               f"unix:{socket_path}")
    wait_until("it is open", lambda: all(d["state"] == "open" for d in client.status()["devices"]))
    uri = f"nbd+unix:///second?socket={socket_path}"
    check(run("nbdinfo", "--size", uri).stdout.strip() == str(2 << 20), "its size")
    listed = client.ctl("list").stdout
    check("vol1" in listed and "second" in listed, listed)
    again = client.ctl("map", "vol2", "--session", "host-a", "--name", "second", ok=False)
    check(again.returncode != 0 and "already" in again.stderr, again.stderr)
    client.ctl("unmap", "second")
    check(not os.path.exists(socket_path), "its socket is gone")
    check(len(client.status()["devices"]) == 1, "it is gone")
    # Two devices on one socket: clients choose by name, and one may go while the other stays.
    shared = lab.socket("client", "vol1")
    client.ctl("map", "vol2", "--session", "host-a", "--nbd", f"unix:{shared}")
    wait_until("it is open", lambda: all(d["state"] == "open" for d in client.status()["devices"]))
    names = [e["export-name"] for e in json.loads(
        run("nbdinfo", "--list", "--json", "--no-content", f"nbd+unix:///?socket={shared}").stdout)["exports"]]
    check(sorted(names) == ["vol1", "vol2"], names)
    check(run("nbdinfo", "--size", f"nbd+unix:///vol2?socket={shared}").stdout.strip()
          == str(2 << 20), "its size")
    check(run("nbdinfo", "--no-content", f"nbd+unix:///?socket={shared}", ok=False).returncode != 0,
          "the empty name is ambiguous")
    client.ctl("unmap", "vol2")
    run("nbdinfo", "--no-content", f"nbd+unix:///?socket={shared}")
    # A name is no path: its socket is beside the others.
    client.ctl("map", "dir/vol3", "--session", "host-a")
    wait_until("it is open", lambda: all(d["state"] == "open" for d in client.status()["devices"]))
    uri = f"nbd+unix:///dir/vol3?socket={lab.path('dir!vol3.sock')}"
    check(run("nbdinfo", "--size", uri).stdout.strip() == str(3 << 20), "its size")
    client.ctl("unmap", "dir/vol3")
    absent = client.ctl("unmap", "second", ok=False)
    check(absent.returncode == 4, absent.returncode)
    # What a command does not know is refused, and nothing is done; so is what is not as it has to be.
    known = {"map": {"volume": "vol2", "session": "host-a"}, "unmap": {"device": "vol1"}, "paths": {},
             "explain": {"device": "vol1"}, "policy": {"session": "host-a"}, "discover": {"server": "host-a"},
             "path_remove": {"session": "host-a", "path": f"127.0.0.1:{server.port}"}, "hold": {}, "status": {},
             "attribute_get": {"path": "class"}, "attribute_set": {"path": "class", "value": ""}, "attribute_list": {}}
    refusals = answers(client, [(command, dict(arguments, strange=1)) for command, arguments in known.items()])
    messages = [answer["error"]["message"] for answer in refusals]
    check(all(message.startswith("unknown argument strange, expected ") for message in messages), messages)
    check(messages[-2].endswith("expected path, value"), messages)
    wrong = {"device: expected a name": ("unmap", {"force": True}),
             "force: expected true or false": ("unmap", {"device": "vol1", "force": 1}),
             "session: expected a name": ("map", {"volume": "vol2", "session": ""}),
             "paths: found a mapping, expected a list (- ...)": ("map", dict(known["map"], paths={})),
             'policy: found "any", expected round-robin, min-inflight, min-latency, service-time':
                 ("policy", {"session": "host-a", "policy": "any"}),
             "path: found \"x\", expected [rdma:][SOURCE@]HOST:PORT, numeric":
                 ("path_add", {"session": "host-a", "path": "x"}),
             "there is no session nobody; --path HOST:PORT makes one": ("map", {"volume": "v", "session": "nobody"})}
    said = [answer["error"]["message"] for answer in answers(client, wrong.values())]
    check(said == list(wrong), said)
    # Of a name, not of an address that nobody gave, if that was made of the name.
    for name, text in (("v" * 200, "--nbd: the default, a socket with the name of the device, has a path of more than "
                                   "107 bytes: name another address"),
                       ("a b", "EXPORT: found \"a b\", expected a name of 1 to 254 printable ASCII characters "
                               "without space, \"..\" and leading '/'")):
        refused = client.ctl("map", name, "from", "host-a", ok=False)
        check(refused.returncode == 2 and refused.stderr.startswith(f"rnbdctl: {text}\n"), refused.stderr)
    check([d["name"] for d in client.status()["devices"]] == ["vol1"], "they have done nothing")
    # One that cannot be mapped is gone when that is told, again and again; so is a session that was made for it.
    taken = lab.path("taken.sock")
    other = socket.socket(socket.AF_UNIX)
    other.bind(taken)
    other.listen(64)
    for session in ({"session": "host-a"},
                    {"session": "host-x", "paths": [{"tcp": f"127.0.0.1:{server.port}"}]}):
        asked = dict(session, volume="vol2", nbd=f"unix:{taken}")
        for answer in answers(client, [("map", asked)] * 20):
            check(not answer["ok"] and "another process serves" in answer["error"]["message"], answer)
        check([d["name"] for d in client.status()["devices"]] == ["vol1"], "nothing is left of it")
    check("vol2: not served: unix:" in client.log(), "the log says why")
    other.close()
    os.unlink(taken)
    client.ctl("map", "vol2", "--session", "host-a", "--nbd", f"unix:{taken}")
    client.ctl("unmap", "vol2")
    # Whether it can be used, or why not.
    def mapped_and_unmapped(volume, *words):
        said = client.ctl(*words, "map", volume, "--session", "host-a").stdout
        client.ctl("unmap", volume)
        return said

    def told_that_it_is_open():
        mapped = json.loads(mapped_and_unmapped("vol2", "--json"))["result"]
        return (mapped["state"], mapped["reason"], mapped["kernel"]) == ("open", "", None)

    def told_that_it_is_refused():
        said = mapped_and_unmapped("vol-2")
        check(said.startswith("vol-2 is served at unix:") and "not open yet: " in said, said)
        return "not open yet: the server refuses to open it" in said

    # It waits a second for that, in which a busy machine may not have done it.
    wait_until("it is told that it is open", told_that_it_is_open)
    wait_until("it is told that it is refused", told_that_it_is_refused)
    # The system chooses the port, and it is told.
    answer = json.loads(client.ctl("--json", "map", "vol2", "--session", "host-a", "--nbd", "tcp:127.0.0.1:0").stdout)
    chosen = answer["result"]["nbd"][0]
    check(re.fullmatch(r"tcp:127\.0\.0\.1:[1-9]\d*", chosen), chosen)
    check(next(d for d in client.status()["devices"] if d["name"] == "vol2")["nbd"] == [chosen], "status")
    check(f"vol2: NBD on {chosen}" in client.log(), "the log")
    wait_until("it is served there", lambda: run("nbdinfo", "--size", f"nbd://{chosen[4:]}/vol2", ok=False).returncode == 0)
    client.ctl("unmap", "vol2")
    # A session of its own, which goes with its last device.
    client.ctl("map", "vol2", "--session", "host-x", "--path", f"127.0.0.1:{server.port}")
    wait_until("the server refuses it", lambda: "allow list" in next(
        d for d in client.status()["devices"] if d["name"] == "vol2")["reason"])
    client.ctl("unmap", "vol2")
    wait_until("the session is gone", lambda: len(client.status()["sessions"]) == 1)
    server.ctl("list")
    server.ctl("status")
    check(json.loads(server.ctl("--json", "list").stdout)["schema"] == "rnbd-control", "schema")
    gone = run(os.path.join(BUILD, "rnbdctl", "rnbdctl"), "--socket", lab.path("none"), "list",
               ok=False)
    check(gone.returncode == 3, gone.returncode)
