"""A configuration maps a device again whose unmap is still waited for, as soon as that is over: also if it takes longer
than the daemon waits for a change, and not if the device has left the configuration meanwhile."""
from configurations import *
from harness import *
from nbd_clients import *

with Lab() as lab:
    gate = lab.path("gate")
    memory = {"kind": "memory", "size": "1MiB"}
    allow = [{"session": "host-a", "access": "rw"}]
    server = lab.server([
        {"name": "slow", "allow": allow, "storage": {"kind": "delay", "gate": gate, "of": memory}},
        {"name": "other", "allow": allow, "storage": memory}])
    # What the server does not answer is waited for, since another device uses the session.
    client = lab.client(server, {"slow": {}, "other": {}})
    with open(client.config_path) as text:
        whole = json.load(text)
    without = dict(whole, devices=[device for device in whole["devices"] if device["name"] != "slow"])

    def mapped():
        return {device["name"]: device["state"] for device in client.status()["devices"]}

    def being_unmapped():
        """The unmap, which waits for a write until the gate is open, and where the log ends before it."""
        open(gate, "w").close()
        user = connected(lab, "slow")
        user.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(4096)), 0)
        wait_until("the write is with the server", lambda: user.poll(0) or server.status()["sessions"][0]["in_flight"])
        since = len(client.log())
        unmap = begin(client, "unmap", "slow", "--force")
        logged(client, "slow: stopping", since)
        return unmap, since

    unmap, since = being_unmapped()
    refused = client.ctl("map", "slow", "--session", "host-a", "--nbd", f"unix:{lab.path('else.sock')}", ok=False)
    check(refused.returncode == 5 and "device slow is still being unmapped" in refused.stderr, refused)
    apply = begin(client, "config", "apply")
    logged(client, "slow: mapped later: device slow is still being unmapped", since)
    check(config(client, "diff")[0]["state"] == "same", "nothing is left to do")
    os.unlink(gate)
    succeeds(unmap)
    succeeds(apply)
    wait_until("it is open", lambda: mapped() == {"other": "open", "slow": "open"})

    # Later than the change that maps it.
    unmap, since = being_unmapped()
    document, _ = config(client, "apply", ok=False)
    check(document["state"] == "incomplete" and changes(document) == {"device slow": "added"}, document)
    check(config(client, "diff")[0]["state"] == "same", "nothing is left to do")
    check("slow: gone" not in client.log()[since:], "it is still being unmapped")
    os.unlink(gate)
    succeeds(unmap)
    wait_until("it is open", lambda: mapped() == {"other": "open", "slow": "open"})

    # It leaves the configuration while it waits.
    unmap, since = being_unmapped()
    apply = begin(client, "config", "apply")
    logged(client, "slow: mapped later", since)
    write_config(client, without)
    apply.terminate()
    apply.communicate()
    wait_until("it is no part of the configuration", lambda: changes(config(client, "diff")[0]) == {"device slow": "removed"})
    wait_until("the first change has ended", lambda: config(client, "apply", ok=False)[0].get("state") == "applied")
    os.unlink(gate)
    succeeds(unmap)
    check(mapped() == {"other": "open"}, client.status()["devices"])
    check(config(client, "diff")[0]["state"] == "same", "as the files say")
