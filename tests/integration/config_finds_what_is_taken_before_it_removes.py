"""A new uuid or path that another export has, which stays, is a conflict: the export that was to be replaced is still there,
also with --force. What an export in memory has, and loses when it is replaced, is one but for --force."""
from configurations import *
from harness import *

UUID = "11111111-2222-4333-8444-555555555555"


def refused(server, name, what, *words):
    document, code = config(server, "apply", *words, ok=False)
    check(code != 0 and document["state"] == "refused", document)
    conflicts = {one["name"]: one["conflict"] for one in document["objects"] if one["conflict"]}
    check(set(conflicts) == {name} and what in conflicts[name], conflicts)


def exports_of(server):
    return {e["name"]: e["path"] for e in server.status()["exports"]}


def the_uuid_of_another(lab, server):
    before = exports_of(server)
    server.config_with(lambda config: config["exports"][0].update(uuid=UUID))
    for words in ((), ("--force",)):
        refused(server, "vol", f"export d has the uuid {UUID} already", *words)
    check("has the uuid" in reload(server), "so it is by a signal")
    check(exports_of(server) == before, "nothing is gone")

    # One that is found by itself.
    found = {e["name"]: e["uuid"] for e in server.status()["exports"]}["found"]
    server.config_with(lambda config: config["exports"][0].update(uuid=found))
    refused(server, "vol", f"export found has the uuid {found} already", "--force")
    check(exports_of(server) == before, "nothing is gone")

    # Whoever goes is in nobody's way.
    server.ctl("exports", "remove", "found")
    check(config(server, "apply")[0]["state"] == "applied", "its uuid is free")
    check({e["name"]: e["uuid"] for e in server.status()["exports"]}["vol"] == found, "vol has it")


def what_is_in_memory(lab, server):
    server.config_with(lambda config: config["exports"].append({
        "name": "memory", "storage": {"kind": "memory", "size": "1MiB"},
        "allow": [{"session": "host-a", "access": "rw"}]}))
    check(config(server, "apply")[0]["state"] == "applied", "it is there")
    client = lab.client(server, {"memory": {}})
    run("nbdsh", "-u", lab.uri("memory"), "-c", "h.pwrite(b'content.' * 64, 0)")

    server.config_with(lambda config: config["exports"][1].update(block_size=4096))
    refused(server, "memory", "what is in its memory would be lost")
    client.ctl("unmap", "memory")
    wait_until("nobody has it open", lambda: not any(e["opens"] for e in server.status()["exports"]))
    refused(server, "memory", "what is in its memory would be lost")
    check("would be lost" in reload(server), "so it is by a signal")
    client.ctl("map", "memory", "from", "host-a", "--ro")
    uri = client.status()["devices"][0]["nbd"][0]
    path = (uri["address"] if isinstance(uri, dict) else uri).removeprefix("unix:")
    uri = f"nbd+unix:///memory?socket={path}"
    first = "print(h.pread(512, 0)[:8].decode())"
    check(run("nbdsh", "-u", uri, "-c", first).stdout.strip() == "content.", "it is still there")
    client.stop()

    check(config(server, "apply", "--force")[0]["state"] == "applied", "by force")
    # Who takes it out of the files says so.
    server.config_with(lambda config: config["exports"].pop())
    check(config(server, "apply")[0]["state"] == "applied", "it is gone")


need("nbdsh")
with Lab() as lab:
    server = lab.server([export("vol", lab.path("vol.img"), "1MiB")])
    what_is_in_memory(lab, server)
    # With a uuid it is not created.
    with open(lab.path("d.img"), "wb") as image:
        image.truncate(1 << 20)
    server.ctl("exports", "add", "d", lab.path("d.img"), "--uuid", UUID, "--allow", "host-a=rw")
    server.ctl("exports", "add", "found", lab.path("found.img"), "--size", "1MiB", "--allow", "host-a=rw")
    wait_until("they are ready", lambda: all(e["state"] == "ready" for e in server.status()["exports"]))
    the_uuid_of_another(lab, server)
