"""Unmapping a device flushes it, also while others have all permits; what could not be flushed is told."""
from harness import *
from nbd_clients import *

BLOCK = b"x" * 4096


with Lab() as lab:
    gate = lab.path("gate")
    allow = [{"session": "host-a", "access": "rw"}]
    memory = {"kind": "memory", "size": "1MiB"}
    server = lab.server([
        {"name": "slow", "allow": allow, "storage": {"kind": "delay", "of": memory, "gate": gate}},
        {"name": "first", "allow": allow, "storage": memory},
        export("second", lab.path("second.img"), "1MiB"),
    ], queue_depth=9)  # one is for the session itself
    client = lab.client(server, {"slow": {}, "first": {}, "second": {}})
    for name in ("first", "second"):
        h = connected(lab, name)
        h.pwrite(BLOCK, 0)
        h.shutdown()

    # One large request has all permits.
    with open(gate, "w"):
        pass
    other = connected(lab, "slow")
    other.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(1 << 20)), 0)

    def permits_free():
        other.poll(0)
        return client.status()["sessions"][0]["permits_free"]

    wait_until("no permit is left", lambda: permits_free() == 0)
    wait_until("all of it is sent", lambda: permits_free() == 0 and
               server.status()["sessions"][0]["in_flight"] == 8)
    flushes = lambda: server.status()["sessions"][0]["others"]
    check(flushes() == 0, "nobody has flushed")
    unmap = subprocess.Popen([os.path.join(BUILD, "rnbdctl", "rnbdctl"), "--socket", client.control,
                              "unmap", "first"])
    wait_until("it is being unmapped", lambda: "first: stopping" in client.log())
    os.unlink(gate)
    check(unmap.wait(timeout=PATIENCE_S) == 0, "it is unmapped")
    check(flushes() == 1, "it was flushed")
    check("no flush has covered" not in client.log(), "nothing was left")

    server.kill()
    wait_until("the server is away", lambda: all(
        d["state"] == "reopening" for d in client.status()["devices"]))
    unmapped = client.ctl("unmap", "second", ok=False)
    said = "it was closed with 1 acknowledged writes that no flush has covered"
    check(unmapped.returncode == 1 and f"second is unmapped, but {said}" in unmapped.stderr,
          f"who unmaps it is told: {unmapped.stderr}")
    check(f"second: {said}" in client.log(), "the log has it")

# Nor is it silent when a configuration without the device is applied.
with Lab() as lab:
    server = lab.server([export("vol", lab.path("vol.img"), "1MiB")])
    client = lab.client(server, {"vol": {}})
    h = connected(lab, "vol")
    h.pwrite(BLOCK, 0)
    h.shutdown()
    server.kill()
    wait_until("the server is away", lambda: client.status()["devices"][0]["state"] == "reopening")
    client.config_with(lambda config: config["devices"].clear())
    applied = client.ctl("--json", "config", "apply", ok=False)
    changes = [one for one in json.loads(applied.stdout)["result"]["objects"] if one["change"] == "removed"]
    check([(one["name"], one["failure"]) for one in changes] == [("vol", "")], f"it is gone: {changes}")
    check(changes[0]["loss"] == said and applied.returncode == 1, f"what is lost is told: {applied}")
    check(f"device vol: removed, but {said}" in client.log(), "the log has it")
