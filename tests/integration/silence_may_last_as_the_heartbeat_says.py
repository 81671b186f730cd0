"""Connections by themselves are no quicker to judge silence than the heartbeat that somebody has set."""
import re

from harness import Lab, check, export, need, run, wait_until


def first_probes(direction, port):
    """When TCP will first ask on the idle connections of one side, in seconds."""
    text = run("ss", "-tnoH", "state", "established", direction, "=", f":{port}").stdout
    timers = re.findall(r"timer:\(keepalive,(?:(\d+)min)?(?:(\d+)(?:\.\d+)?sec)?", text)
    return [60 * int(minutes or 0) + int(seconds or 0) for minutes, seconds in timers]


need("ss")
with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "16MiB")])
    client = lab.client(server, {"vol1": {}},
                        session_options={"heartbeat": {"interval": "20s", "timeout": "40s"}})
    # Half of twice the timeout at the client, half of the least, 10 s, at the server.
    ours = wait_until("the client's connections are idle",
                      lambda: (p := first_probes("dport", server.port)) and min(p) > 10 and p)
    check(max(ours) <= 40, f"the client's: {ours}")
    theirs = first_probes("sport", server.port)
    check(theirs and max(theirs) <= 5, f"the server's: {theirs}")
