"""A server whose machine lacks one of its addresses serves by the others, says so, and listens there as soon as it comes."""
import urllib.request

from harness import *
from nbd_clients import *

ABSENT = "192.0.2.1"

need_root()
need("unshare", "ip")
if len(sys.argv) == 1:
    if run("unshare", "-n", "true", ok=False).returncode != 0:
        skip("no network namespaces here")
    os.execvp("unshare", ["unshare", "-n", sys.executable, __file__, "inside"])
run("ip", "link", "set", "lo", "up")


def address(command):
    run("ip", "address", command, f"{ABSENT}/32", "dev", "lo")


with Lab() as lab:
    server = lab.server([export("vol", lab.path("vol.img"), size="1MiB")])
    absent, present = f"{ABSENT}:{server.port}", f"127.0.0.1:{server.port}"

    def listeners():
        return {one["address"]: one for one in server.status()["listen"]}

    def states():
        return {where: one["state"] for where, one in listeners().items()}

    server.kill()
    server.config_with(lambda config: config["listen"].insert(0, {"tcp": absent}))
    server.start()
    check(states() == {absent: "waiting", present: "listening"}, listeners())
    shown = listeners()[absent]
    check(shown["reason"] == "Cannot assign requested address" and 0 <= shown["next_attempt_s"] <= 1 and shown["age_s"] >= 0,
          shown)
    check(listeners()[present]["reason"] == "" and listeners()[present]["next_attempt_s"] is None, listeners())
    words = server.ctl("status").stdout
    check(f"listening on tcp:{present}\n" in words, words)
    check(f"waiting to listen on tcp:{absent}: Cannot assign requested address (for " in words, words)
    check(f"not listening on tcp {absent} yet: Cannot assign requested address" in server.log(), server.log())

    client = lab.client(server, {"vol": {}})
    client.ctl("paths", "add", "host-a", absent, ok=False)  # which is not connected yet
    h = connected(lab, "vol")
    h.pwrite(b"a" * 4096, 0)
    h.flush()

    # It is part of what runs, for all that a configuration says.
    diff = server.ctl("config", "diff").stdout
    check("listener" not in diff, diff)
    server.config_with(lambda config: config["listen"].pop(0))
    server.ctl("config", "apply")
    check(states() == {present: "listening"}, "one that waits can go")
    # The way back of a change that nobody confirms leads there, too.
    server.config_with(lambda config: config["listen"].insert(0, {"tcp": absent}))
    server.kill()
    server.start()
    wait_until("the client is back", lambda: client.status()["devices"][0]["state"] == "open")
    server.config_with(lambda config: config["listen"].pop(0))
    since = len(server.log())
    server.ctl("config", "apply", "--confirm-within", "5")
    seen = states()
    check(seen == {present: "listening"} or "the change is taken back" in server.log()[since:], seen)
    wait_until("it waits again", lambda: states() == {absent: "waiting", present: "listening"})
    # Who listens nowhere serves nobody.
    server.config_with(lambda config: config.update(listen=[{"tcp": absent}]))
    stays = server.ctl("config", "apply", ok=False)
    check("no other one listens" in stays.stdout + stays.stderr, stays)
    check(states() == {absent: "waiting", present: "listening"}, listeners())
    server.config_with(lambda config: config.update(listen=[{"tcp": present}]))
    server.ctl("config", "apply")
    check(states() == {present: "listening"}, listeners())

    server.config_with(lambda config: config["listen"].insert(0, {"tcp": absent}))
    refused = server.ctl("config", "apply", ok=False)
    check(refused.returncode != 0 and "Cannot assign requested address" in refused.stdout + refused.stderr,
          f"who asks for one is told that it cannot be: {refused}")
    check(states() == {present: "listening"}, listeners())

    # Its metrics come with the address, too.
    server.config_with(lambda config: config.update(metrics={"listen": f"{ABSENT}:9750"}))
    server.kill()
    server.start()
    check(states() == {absent: "waiting", present: "listening"}, listeners())
    check(server.log().count(f"metrics at {ABSENT}:9750: not yet: Cannot assign requested address") == 1, server.log())
    address("add")
    wait_until("metrics", lambda: f"metrics at {ABSENT}:9750\n" in server.log())
    with urllib.request.urlopen(f"http://{ABSENT}:9750/metrics", timeout=PATIENCE_S) as answer:
        check(b"rnbd_uptime_seconds" in answer.read(), "the metrics are there")
    wait_until("it listens there, too", lambda: states() == {absent: "listening", present: "listening"})
    wait_until("clients come in there", lambda: {path["state"] for path in client.status()["sessions"][0]["paths"]}
               == {"connected"})
    check("waiting" not in server.ctl("status").stdout, server.ctl("status").stdout)
    check(h.pread(4096, 0) == b"a" * 4096, "I/O went on")

    # Nowhere to listen is no server.
    address("del")
    server.kill()
    server.config_with(lambda config: config["listen"].pop())
    server.start(wait=False)
    check(server.process.wait(timeout=PATIENCE_S) == 1, "it does not start")
    check(f"cannot listen on tcp {absent}: Cannot assign requested address" in server.log(), server.log())
