"""One of two links drops every packet, without a reset: I/O goes on, and the path returns by itself.

The stalls are measured by tests/bench/failover.py; here it is only counted what went wrong.
"""
from multipath_lab import *

for profile in ({}, TUNED):
    with MultipathLab() as lab:
        lab.network()
        lab.start_server([disk(lab, "numbered"), disk(lab, "fio", "256MiB")])
        lab.start_client(["numbered", "fio"], **profile)
        load = lab.load("fio")
        judge = lab.judge("numbered", blocks=2048)
        for link in (0, 1):
            lab.net.break_link(link, "drop")
            lab.wait_for_loss(link)
            judge.wait_for_progress()
            load.check_running()
            lab.net.heal(link)
            lab.wait_for_paths()
        figures = judge.finish()
        load.finish()
        lab.check_no_errors()
        print(f"{'tuned' if profile else 'default'}: no error")
