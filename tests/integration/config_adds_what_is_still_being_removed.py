"""A configuration adds an export again whose removal is still waited for, as soon as that is over: by apply, by the
roll-back of a change that nobody confirmed, and if it takes longer than the daemon waits for a change."""
from configurations import *
from harness import *

with Lab() as lab:
    gate = lab.path("gate")

    def vol1(access="rw"):
        return {"name": "vol1", "allow": [{"session": "host-a", "access": access}], "storage": {
            "kind": "delay", "gate": gate, "gate_operations": "all",
            "of": {"kind": "path", "path": lab.path("vol1.img"), "size": "1MiB"}}}

    vol2 = export("vol2", lab.path("vol2.img"), "1MiB")
    server = lab.server([vol1(), vol2])
    client = lab.client(server, {"vol1": {"access": "ro"}})
    listen = [{"tcp": f"127.0.0.1:{server.port}"}]

    def write(*exports):
        write_config(server, {"listen": listen, "exports": list(exports)})

    def shut_the_gate():
        """Its last flush waits from now on. Where the log ends."""
        open(gate, "w").close()
        return len(server.log())

    def served_again(since, access="rw"):
        """When the gate is open."""
        check("rnbd.volume: vol1: removed" not in server.log()[since:], "it is still being removed")
        os.unlink(gate)
        logged(server, "rnbd.volume: vol1: added\n", since)
        check([e["name"] for e in server.status()["exports"]] == ["vol2", "vol1"], server.status()["exports"])
        wait_until("both are ready", lambda: all(e["state"] == "ready" for e in server.status()["exports"]))
        wait_until("the client has it", lambda: client.status()["devices"][0]["state"] == "open")
        check(next(e for e in server.status()["exports"] if e["name"] == "vol1")["allow"][0]["access"] == access, "the rule")

    # By apply.
    since = shut_the_gate()
    removal = begin(server, "exports", "remove", "vol1", "--force")
    logged(server, "vol1: being removed", since)
    refused = server.ctl("exports", "add", "vol1", lab.path("vol1.img"), "--allow", "host-a=rw", ok=False)
    check(refused.returncode == 5 and "still being removed" in refused.stderr, refused.stderr)
    apply = begin(server, "config", "apply")
    logged(server, "vol1: added later", since)
    served_again(since)
    succeeds(removal)
    succeeds(apply)

    # By the roll-back, which does not wait for the removal for ever.
    since = shut_the_gate()
    write(vol2)
    apply = begin(server, "config", "apply", "--force", "--confirm-within", "1s")
    logged(server, "the change is taken back", since)
    logged(server, "vol1: added later", since)
    served_again(since)
    check(apply.wait(PATIENCE_S) == 1 and "goes on" in apply.stdout.read(), "the removal took too long")
    check(changes(config(server, "diff")[0]) == {"export vol1": "removed"}, "as it was before")

    # Later than the change that adds it; what comes may change until then.
    since = shut_the_gate()
    write(vol1(), vol2)
    removal = begin(server, "exports", "remove", "vol1", "--force")
    logged(server, "vol1: being removed", since)
    document, _ = config(server, "apply", ok=False)
    check(document["state"] == "incomplete" and changes(document) == {"export vol1": "added"}, document)
    check(config(server, "diff")[0]["state"] == "same", "nothing is left to do")
    write(vol1("ro"), vol2)
    check(changes(config(server, "apply")[0]) == {"export vol1": "changed"}, "it is changed before it is there")
    served_again(since, "ro")
    succeeds(removal)
    check(config(server, "diff")[0]["state"] == "same", "as the files say")
