"""What the kernel reports (a reset, an ICMP error) ends a path at once, over IPv4 and IPv6.

The heartbeats of both sides are far too slow to notice anything, and so is TCP itself.
"""
from multipath_lab import *

NEVER = {"interval": "200s", "timeout": "10min"}

with MultipathLab() as lab:
    lab.network(links=2, six=[1])
    lab.start_server([disk(lab, "numbered")], heartbeat=NEVER)
    lab.start_client(["numbered"], heartbeat=NEVER, request_deadline="1h")
    judge = lab.judge("numbered", blocks=512)
    for fault in ("reset", "host-unreachable"):
        for link in (0, 1):
            lab.net.break_link(link, fault)
            lab.wait_for_loss(link)
            judge.wait_for_progress()
            lab.net.heal(link)
            lab.wait_for_paths()
    judge.finish()
    lab.check_no_errors()
