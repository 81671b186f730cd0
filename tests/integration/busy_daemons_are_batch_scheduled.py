"""Both daemons become SCHED_BATCH under load, and are not when they are told so, or have been given another policy."""
import os

import openmetrics
from harness import *
from nbd_clients import *

if not os.path.exists("/proc/self/schedstat"):
    skip("the kernel tells nothing of waiting for a processor")

# What the daemons are started by, their settings, the policy that they keep (none: it changes).
for prefix, settings, kept in (((), {}, None), ((), {"batch_scheduling": False}, os.SCHED_OTHER),
                               (("chrt", "--idle", "0"), {}, os.SCHED_IDLE), ((), {"workers": 2}, os.SCHED_OTHER)):
    with Lab() as lab:
        def listener(daemon):
            return lab.path(f"{daemon}-metrics.sock")

        def batch_turns(daemon):
            return openmetrics.scrape(listener(daemon))["rnbd_reactor_batch_turns"].total("_total")

        server = lab.server([{"name": "vol", "allow": [{"session": "host-a", "access": "rw"}],
                              "storage": {"kind": "memory", "size": "1MiB"}}], prefix=prefix,
                            metrics={"listen": f"unix:{listener('server')}"}, **settings)
        client = lab.client(server, {"vol": {}}, prefix=prefix,
                            metrics={"listen": f"unix:{listener('client')}"}, **settings)
        handle = connected(lab, "vol")

        def read():
            """One by one: nothing wakes a daemon more often."""
            for _ in range(1000):
                handle.pread(512, 0)
            return True

        for daemon in (server, client):
            if kept is None:
                # For moments only, if others compute.
                wait_until(f"{daemon.name} has been", lambda: read() and batch_turns(daemon.name) > 0)
                continue
            for _ in range(10):
                read()
            policy = os.sched_getscheduler(daemon.process.pid)
            check(policy == kept and batch_turns(daemon.name) == 0, f"{prefix} {settings}: {daemon.name}: {policy}")
        handle.shutdown()
