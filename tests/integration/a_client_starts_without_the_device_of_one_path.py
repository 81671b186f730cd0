"""Paths whose RDMA devices are not there when rnbd-client starts: sessions begin with the others, or wait, and say what is missing."""

from configurations import *
from harness import *

# Nobody's here, so that no RDMA device has it.
ABSENT = "rdma:192.0.2.9@192.0.2.1:1235"

with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "64MiB")])
    client = lab.client(server, {"vol1": {}})
    check(client.stop() == 0, "rnbd-client")

    def has_paths(config, paths):
        config["sessions"][0]["paths"] = paths

    tcp, rdma = {"tcp": f"127.0.0.1:{server.port}"}, {"rdma": ABSENT.removeprefix("rdma:")}
    client.config_with(lambda config: has_paths(config, [rdma, tcp]))
    client.start(wait=False)
    wait_until("it answers, or has ended", lambda: client.process.poll() is not None or
               client.ctl("status", ok=False).returncode == 0)
    if "RDMA is not built in" in client.log():
        skip("RDMA is not built in")
    wait_until("the device is open", lambda: client.status()["devices"][0]["state"] == "open")
    run("qemu-io", "-f", "raw", "-c", "write -P 7 1M 64k", "-c", "read -P 7 1M 64k", lab.uri("vol1"))

    def device(name):
        return next(one for one in client.status()["devices"] if one["name"] == name)

    def absent():
        return next(path for path in client.status()["sessions"][0]["paths"] if path["label"] == ABSENT)

    wait_until("it was tried again", lambda: absent()["attempts"] > 1)
    check(absent()["state"] == "backoff" and "no RDMA device has the address 192.0.2.9" in absent()["reason"], absent())
    check(client.log().count(f"{ABSENT} is not used yet") == 1, client.log())
    said = client.ctl("paths", "reconnect", "host-a", ABSENT, ok=False)
    check(said.returncode == 1 and "no RDMA device has the address" in said.stderr, said)

    def apply(paths):
        client.config_with(lambda config: has_paths(config, paths))
        document = config(client, "apply")[0]
        check(document["state"] == "applied", document)
        return changes(document)

    check(apply([rdma, tcp]) == {}, "it is as configured")
    check(apply([dict(rdma, priority="standby"), tcp]) != {} and absent()["priority"] == "standby", absent())
    check(apply([tcp]) == {f"path host-a {ABSENT}": "removed"}, "the path goes")
    check(len(client.status()["sessions"][0]["paths"]) == 1, client.status())
    check(client.stop() == 0, "rnbd-client")

    # Without any path its devices wait; other sessions go on, and so does it when a path comes.
    def alone(config):
        config["sessions"] = [{"name": "host-b", "paths": [rdma]}, {"name": "host-a", "paths": [tcp]}]
        config["devices"].append({"name": "late", "session": "host-b", "volume": "vol1",
                                  "access": "ro", "nbd": "unix:" + lab.socket(client.name, "late")})

    client.config_with(alone)
    client.start(wait=False)
    wait_until("the other session's device is open",
               lambda: client.ctl("status", ok=False).returncode == 0 and device("vol1")["state"] == "open")
    waits = device("late")
    check(waits["state"] == "opening" and "none of its paths has its device yet" in waits["reason"], waits)
    session = next(one for one in client.status()["sessions"] if one["name"] == "host-b")
    check("none of its paths has its device yet" in session["reason"] and
          [path["state"] for path in session["paths"]] == ["backoff"], session)
    said = client.ctl("paths", "remove", "host-b", ABSENT, "--force", ok=False)
    check(said.returncode == 5 and "is the last path of session host-b" in said.stderr, said)
    said = client.ctl("map", "vol1", "--session", "host-c", "--path", ABSENT, "--name", "now", ok=False)
    check(said.returncode == 1 and "no RDMA device has the address" in said.stderr, said)
    # The server lets host-b in, too.
    server.config_with(lambda config: config["exports"][0]["allow"].append({"session": "host-b", "access": "ro"}))
    check(config(server, "apply")[0]["state"] == "applied", "the server")
    client.config_with(lambda config: config["sessions"][0].update(paths=[rdma, tcp]))
    document = config(client, "apply")[0]
    check(document["state"] == "applied", document)
    wait_until("it is open", lambda: device("late")["state"] == "open")
    run("qemu-io", "-r", "-f", "raw", "-c", "read -P 7 1M 64k", lab.uri("late"))
    check(client.stop() == 0, "rnbd-client")
