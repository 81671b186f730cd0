"""A link fails in every way that the kernel knows, under verified I/O: zero errors, the path returns.

Link down at either side, an address removed at either side, resets, ICMP errors, packets dropped in
one direction only; over IPv4 and IPv6.
"""
from multipath_lab import *

with MultipathLab() as lab:
    lab.network(links=3, six=[2])
    lab.start_server([disk(lab, "numbered"), disk(lab, "fio", "256MiB")],
                     heartbeat=TUNED["heartbeat"])
    lab.start_client(["numbered", "fio"], **TUNED)
    load = lab.load("fio")
    judge = lab.judge("numbered", blocks=2048)
    for number, fault in enumerate(FAULTS):
        link = (0, 2)[number % 2]
        lab.net.break_link(link, fault)
        lab.wait_for_loss(link)
        reason = lab.path_of(link)["reason"]
        judge.wait_for_progress()
        lab.net.heal(link)
        lab.wait_for_paths()  # the longer, the more often it was lost
        print(f"{fault} on link {link} (IPv{6 if link in lab.net.six else 4}): {reason}")
    judge.finish()
    load.finish()
    lab.check_no_errors()
