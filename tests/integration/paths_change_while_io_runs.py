"""Paths are added, removed, disconnected and reconnected, and the policy is changed, under verified I/O."""
import re

from fio import *
from harness import *

need("fio")
ROUNDS = int(os.environ.get("RNBD_ROUNDS", "6"))
POLICIES = ["round-robin", "min-latency", "service-time", "min-inflight"]


def connected(client):
    return {p["label"] for p in client.status()["sessions"][0]["paths"]
            if p["state"] == "connected"}


def refusals(client, port, spare):
    """Each wrong or impossible operation says why, with its exit code."""
    for words, code, text in [
            (("add", "host-a", f"127.0.0.1:{port}"), 5, "there already"),
            (("add", "nobody", f"127.0.0.1:{port}"), 4, "no session nobody"),
            (("add", "host-a", "somewhere"), 2, "HOST:PORT"),
            (("remove", "host-a", "127.0.0.9:9"), 4, "has no path"),
            (("remove", "host-a", f"127.0.0.1:{port}"), 5, "last path"),
            (("add", "host-a", f"127.0.0.1:{spare}", "--timeout", "1"), 7, "Connection refused")]:
        result = client.ctl("paths", *words, ok=False)
        check(result.returncode == code and text in result.stderr, (words, result))
    alone = client.ctl("paths", "remove", "host-a", f"127.0.0.1:{port}", ok=False)
    # The other one is tried again now and then.
    check(alone.returncode == 5 and "--force" in alone.stderr and re.search(
        r"the only path of session host-a that is connected \(127\.0\.0\.1:"
        rf"{spare}: (backoff|connecting) \(cannot connect: Connection refused\)", alone.stderr), alone)
    client.ctl("paths", "remove", "host-a", f"127.0.0.1:{port}", "--force")
    client.ctl("paths", "add", "host-a", f"127.0.0.1:{port}")
    client.ctl("paths", "remove", "host-a", f"127.0.0.1:{spare}")
    check(client.ctl("policy", "host-a", "fastest", ok=False).returncode == 2, "no such policy")


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "256MiB")], host="0.0.0.0",
                        heartbeat=PATIENT["heartbeat"])
    client = lab.client(server, {"vol1": {}}, session_options=PATIENT)
    first, second = f"127.0.0.1:{server.port}", f"127.0.0.2:{server.port}"
    refusals(client, server.port, free_port())
    load = VerifiedLoad(lab, client, "vol1")
    for number in range(ROUNDS):
        client.ctl("paths", "add", "host-a", second,
                   "--priority", "standby" if number % 3 == 2 else "prefer")
        check(connected(client) == {first, second}, client.status()["sessions"])
        client.ctl("policy", "host-a", POLICIES[number % len(POLICIES)])
        client.ctl("paths", "disconnect", "host-a", first)
        check(connected(client) == {second}, "one is left")
        client.ctl("paths", "reconnect", "host-a", first)
        client.ctl("paths", "reconnect", "host-a", second)
        check(connected(client) == {first, second}, "both are back")
        client.ctl("paths", "remove", "host-a", first)
        check(connected(client) == {second}, "one is gone")
        third = f"127.0.0.3@{first}"  # between the same two addresses there is only one path
        client.ctl("paths", "add", "host-a", third)
        client.ctl("paths", "remove", "host-a", second)
        client.ctl("paths", "add", "host-a", first)
        client.ctl("paths", "remove", "host-a", third)
        load.wait_for_writes(100)
    load.finish()
    device = client.status()["devices"][0]
    check(device["errors"] == 0 and device["state"] == "open", device)
    check(client.status()["sessions"][0]["protection"] == "exactly-once", "protection")
    check(server.status()["sessions"][0]["protection"] == "exactly-once", "protection")
    features = server.status()["sessions"][0]["features"]
    check(len(features) == 7 and all(features.values()), str(features))
    print(f"{ROUNDS} rounds; paths at the end:\n{client.ctl('paths').stdout}")
