"""Storage that is slower than every timeout of the paths ends none of them; cut links still cost no error.

Requests are probed, because they are late, and the server answers. Then links fail while requests
wait in the storage: their retries wait for them.
"""
from multipath_lab import *

# Times that a machine which is busy with something else keeps, too.
TIMES = {"heartbeat": {"interval": "300ms", "timeout": "2s"}, "request_deadline": "300ms",
         "probe_timeout": "1s"}

with MultipathLab() as lab:
    lab.network()
    slow = {"name": "numbered", "allow": [{"session": "host-a", "access": "rw"}],
            "storage": {"kind": "delay", "write": "1ms", "every": 100, "by": "3s",
                        "of": {"kind": "path", "path": lab.path("numbered.img"), "size": "64MiB"}}}
    lab.start_server([slow], heartbeat=TIMES["heartbeat"])
    lab.start_client(["numbered"], **TIMES)
    judge = lab.judge("numbered", blocks=64, depth=8)
    judge.wait_for_progress(400)
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
