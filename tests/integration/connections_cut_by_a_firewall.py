"""Packets between client and server dropped (no reset) under verified load: I/O stalls and goes on.

RNBD_ROUNDS=100 is the long run.
"""
from harness import *
from fio import *

need("fio", "nft", "ip")
need_root()
ROUNDS = int(os.environ.get("RNBD_ROUNDS", "2"))


def network(lab):
    """Two hosts of our own with a cable between them."""
    tag = f"rnbd{os.getpid() % 100000}"
    server, client = tag + "s", tag + "c"
    if run("ip", "netns", "add", server, ok=False).returncode != 0:
        skip("cannot make network namespaces here")
    lab.cleanups.append(lambda: run("ip", "netns", "del", server, ok=False))
    if run("ip", "netns", "exec", server, "true", ok=False).returncode != 0:
        skip("cannot enter network namespaces here")
    run("ip", "netns", "add", client)
    lab.cleanups.append(lambda: run("ip", "netns", "del", client, ok=False))
    run("ip", "link", "add", "eth0", "netns", server, "type", "veth", "peer", "name", "eth0",
        "netns", client)
    for space, address in ((server, "10.99.0.1/24"), (client, "10.99.0.2/24")):
        run("ip", "-n", space, "addr", "add", address, "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
    return server, client


with Lab() as lab:
    server_space, client_space = network(lab)
    inside = lambda space: ["ip", "netns", "exec", space]
    server = lab.server([export("vol1", lab.path("vol1.img"), "256MiB")], host="10.99.0.1",
                        prefix=inside(server_space),
                        heartbeat={"interval": "200ms", "timeout": "1s"})
    client = lab.client(server, {"vol1": {}}, host="10.99.0.1", prefix=inside(client_space),
                        session_options={"heartbeat": {"interval": "200ms", "timeout": "1s"}})
    load = VerifiedLoad(lab, client, "vol1")
    for _ in range(ROUNDS):
        time.sleep(random.uniform(0.3, 0.8))
        load.check_running()
        run(*inside(server_space), "nft", "add table inet cut; add chain inet cut in "
            "{ type filter hook input priority 0; policy drop; }; add chain inet cut out "
            "{ type filter hook output priority 0; policy drop; }")
        wait_until("the client has noticed", lambda: client.status()["sessions"][0]["state"]
                   == "disconnected")
        time.sleep(random.uniform(0, 0.5))
        run(*inside(server_space), "nft", "delete table inet cut")
        wait_until("the device is open again", lambda: all(
            d["state"] == "open" for d in client.status()["devices"]))
    load.finish()
    check(client.status()["devices"][0]["errors"] == 0, "NBD requests failed")
    print(f"{ROUNDS} rounds, no error")
