"""With `workers`, every one of them carries a part of the connections, and nothing else is different."""

import time

from fio import VerifiedLoad
from harness import Lab, check, export, need, run, same

WORKERS = 3


def completions(daemon):
    return [worker["completions"] for worker in daemon.status()["workers"]]


need("fio", "nbdcopy")
with Lab() as lab:
    storage = {
        "file": export("file", lab.path("file.img"), "256MiB", io="buffered"),
        "direct": export("direct", lab.path("direct.img"), "64MiB", io="direct", block_size=4096),
        "memory": {"name": "memory", "storage": {"kind": "memory", "size": "64MiB"},
                   "allow": [{"session": "host-a", "access": "rw"}]},
        "late": {"name": "late", "allow": [{"session": "host-a", "access": "rw"}],
                 "storage": {"kind": "delay", "write": "1ms", "read": "1ms",
                             "of": {"kind": "path", "path": lab.path("late.img"), "size": "64MiB"}}},
    }
    server = lab.server(list(storage.values()), workers=WORKERS)
    client = lab.client(server, {name: {} for name in storage}, workers=WORKERS,
                        session_options={"connections": WORKERS})
    for daemon in (server, client):
        check(len(daemon.status()["workers"]) == WORKERS, daemon.status())
        check(f"{WORKERS} workers" in daemon.ctl("status").stdout, daemon.ctl("status").stdout)
    before = {daemon.name: completions(daemon) for daemon in (server, client)}

    # Data goes in and comes out by tools that we did not write.
    small = lab.random_file("small", 64 << 20)
    large = lab.random_file("large", 256 << 20)
    for name in storage:
        data = large if name == "file" else small
        run("nbdcopy", "--connections=4", data, lab.uri(name))
        run("nbdcopy", "--connections=4", lab.uri(name), lab.path(f"back-{name}"))
        check(same(data, lab.path(f"back-{name}")), f"{name}: not what was written")
    check(same(large, lab.path("file.img")) and same(small, lab.path("direct.img")) and
          same(small, lab.path("late.img")), "the images are not what was written")
    for daemon in (server, client):
        grown = [now - was for now, was in zip(completions(daemon), before[daemon.name])]
        # Heartbeats and the control socket alone are some tens.
        check(min(grown) > 200, f"{daemon.name}: completions of its workers have grown by {grown}")

    # Verified load of several connections, with the server killed in the middle of it.
    load = VerifiedLoad(lab, client, "file", block=4096)
    for _ in range(3):
        time.sleep(1)
        load.check_running()
        server.kill()
        server.start()
    load.finish()
    check(all(device["errors"] == 0 for device in client.status()["devices"]), client.status())
    check(client.stop() == 0 and server.stop() == 0, "they did not end in order")
