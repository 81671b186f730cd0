"""Storage that is slower than every timeout of the paths ends none of them; cut links still cost no error.

Requests are probed, because they are late, and the server answers. Then links fail while requests
wait in the storage: their retries wait for them.
"""
from multipath_lab import *

# Longer than every one of STEADY.
SLOW_S = 8

with MultipathLab() as lab:
    lab.network()
    slow = {"name": "numbered", "allow": [{"session": "host-a", "access": "rw"}],
            "storage": {"kind": "delay", "write": "1ms", "every": 100, "by": f"{SLOW_S}s",
                        "of": {"kind": "path", "path": lab.path("numbered.img"), "size": "64MiB"}}}
    lab.start_server([slow], heartbeat=STEADY["heartbeat"])
    lab.start_client(["numbered"], **STEADY)
    judge = lab.judge("numbered", blocks=64, depth=8)
    wait_until("slow ones are answered", lambda: judge.mark()["longest_ms"] >= 1000 * SLOW_S)
    check(all(path["reconnects"] == 0 and path["state"] == "connected" for path in lab.paths()),
          "a path was lost")
    for link in (0, 1, 0, 1):
        lab.net.break_link(link, "drop")
        lab.wait_for_loss(link)
        judge.wait_for_progress(100)
        lab.net.heal(link)
        lab.wait_for_paths()
    judge.finish()
    lab.check_no_errors()
