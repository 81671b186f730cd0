"""rnbdctl sessions --remote shows the server's own figures of a session, or why there are none."""
from harness import *

need("qemu-io")


def remote(client):
    document = json.loads(client.ctl("--json", "sessions", "--remote").stdout)["result"]
    return document["sessions"][0]["remote"]


def figures(client):
    """What the server says; rnbdctl waits a second for it."""
    def answered():
        seen = remote(client)
        return None if seen["reason"] else seen
    return wait_until("the server answers in time", answered)


def shown(client, command, text):
    wait_until(f"rnbdctl {command} shows {text}",
               lambda: text in client.ctl(command, "--remote").stdout)


with Lab() as lab:
    slow = {"kind": "delay", "read": "20ms",
            "of": {"kind": "path", "path": lab.path("slow.img"), "size": "16MiB"}}
    server = lab.server([{"name": "vol1", "storage": slow,
                          "allow": [{"session": "host-a", "access": "rw"}]}])
    client = lab.client(server, {"vol1": {}})
    check(client.status()["sessions"][0]["remote"] is None, "the server is not asked by itself")
    check(figures(client)["p99_us"] == 0, "nothing was done yet")

    commands = [word for i in range(10) for word in ("-c", f"write -P 1 {i * 64}k 64k")]
    commands += [word for i in range(5) for word in ("-c", f"read -P 1 {i * 64}k 64k")]
    run("qemu-io", "-f", "raw", *commands, lab.uri("vol1"))
    seen, known = figures(client), server.status()["sessions"][0]
    for key in ("queue_depth", "reads", "writes", "read_bytes", "write_bytes", "others", "stale"):
        check(seen[key] == known[key], f"{key}: {seen[key]} there, {known[key]} here")
    check(seen["reads"] >= 5 and seen["read_bytes"] >= 5 << 16, seen)
    check(seen["refused"] == 0 and seen["storage_errors"] == 0, seen)
    # The delay is in the storage, where the server measures.
    check(seen["max_us"] >= 20000 and seen["p99_us"] >= seen["p50_us"] > 0, seen)
    shown(client, "sessions", "0 refused")
    shown(client, "status", "failed in the storage")
    wrong = client.ctl("--server", "sessions", "--remote", ok=False)
    check(wrong.returncode == 2, "a server has no server to ask")

    server.process.send_signal(signal.SIGSTOP)
    try:
        check(remote(client) == {"reason": "no answer in time"}, "a server that stands still")
    finally:
        server.process.send_signal(signal.SIGCONT)
    figures(client)
    server.kill()
    wait_until("no path is up", lambda: remote(client) == {"reason": "no path is up"})
    check("no path is up" in client.ctl("sessions", "--remote").stdout, "the reason")
