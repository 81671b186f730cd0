"""Paths over links that fail are added, removed, disconnected and reconnected under load: no error."""
from multipath_lab import *

ROUNDS = int(os.environ.get("RNBD_ROUNDS", "5"))

with MultipathLab() as lab:
    lab.network(links=4, six=[3])
    lab.start_server([disk(lab, "numbered"), disk(lab, "fio", "256MiB")])
    # A path that is not connected for a moment would make another one the only one, which is not taken away.
    lab.start_client(["numbered", "fio"], links=[0], **STEADY)
    load = lab.load("fio")
    judge = lab.judge("numbered", blocks=512)
    for round_number in range(ROUNDS):
        for link in (1, 2, 3):
            lab.operate_path("add", link)
        check(len(lab.paths()) == 4, "four paths")
        judge.wait_for_progress()
        lab.operate_path("disconnect", 1)
        judge.wait_for_progress()
        lab.operate_path("reconnect", 1)
        # The ones that are taken away are in use, and one of them has just been lost.
        lab.net.break_link(2, "drop")
        for link in (1, 2, 3):
            lab.operate_path("remove", link)
            judge.wait_for_progress()
        lab.net.heal(2)
        check(len(lab.paths()) == 1, "one path")
    # The only one it began with.
    lab.operate_path("add", 2)
    lab.operate_path("remove", 0)
    judge.wait_for_progress()
    judge.finish()
    load.finish()
    lab.check_no_errors()
