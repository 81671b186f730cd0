"""The server stands still for longer than the heartbeat allows and goes on: no error, nothing undone.

It is stopped with I/O in flight: what it finds in its sockets when it goes on are attempts that the
client has given up and sent again. Once with a link cut meanwhile.
"""
from multipath_lab import *

with MultipathLab() as lab:
    lab.network()
    server = lab.start_server([disk(lab, "numbered"), disk(lab, "fio", "256MiB")],
                              heartbeat=TUNED["heartbeat"])
    lab.start_client(["numbered", "fio"], **TUNED)
    load = lab.load("fio")
    # Few blocks: what lands late lands on something newer.
    judge = lab.judge("numbered", blocks=64)
    for cut in (None, None, 0, 1):
        server.process.send_signal(signal.SIGSTOP)
        try:
            for link in (0, 1):
                lab.wait_for_loss(link)
            if cut is not None:
                lab.net.break_link(cut, "drop")
        finally:
            server.process.send_signal(signal.SIGCONT)
        judge.wait_for_progress(1000)
        if cut is not None:
            lab.net.heal(cut)
        lab.wait_for_paths()
    judge.finish()
    load.finish()
    lab.check_no_errors()
