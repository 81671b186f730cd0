"""fio's nbd engine with verification: for a while, or until it is told to end."""
import os
import signal
import subprocess
import tempfile

from harness import check, need, run, wait_to_reach

# What a job has written is read and checked when it has written so many blocks more.
BACKLOG = 16
DEPTH = 32
MIXED_JOBS = 3
# Nobody waits for it: VerifiedLoad is told to end.
A_DAY_S = 86400


def arguments(uri, seconds, block, size="256m"):
    return ["fio", "--ioengine=nbd", f"--uri={uri}", f"--size={size}",
            f"--bsrange={block}-1m", f"--blockalign={block}", f"--iodepth={DEPTH}",
            "--verify=crc32c", "--verify_fatal=1", f"--verify_backlog={BACKLOG}", "--verify_state_save=0",
            # Or fio writes a block anew while it reads it to check it, and finds a part of either.
            "--serialize_overlap=1",
            "--fsync=64", "--group_reporting", "--time_based", f"--runtime={seconds}",
            "--randrepeat=0", "--norandommap=0",
            "--name=mixed", "--rw=randrw", f"--numjobs={MIXED_JOBS}", "--offset_increment=25%", "--size=25%",
            "--name=trims", "--rw=randtrimwrite", "--offset=75%", "--size=25%", "--verify=0",
            "--numjobs=1"]


def fio_verify(uri, seconds, block=512):
    with tempfile.TemporaryDirectory(prefix="fio-") as folder:
        result = run(*arguments(uri, seconds, block), timeout=seconds + 600, cwd=folder, ok=False)
        text = result.stdout + result.stderr
        check(result.returncode == 0 and "err= 0" in text, text[-4000:])
        return text


class VerifiedLoad:
    """fio on a client's device until it is told to end: a test takes as long as its machine needs."""

    # A connection of each job.
    CONNECTIONS = MIXED_JOBS + 1

    def __init__(self, lab, client, device, block=512):
        need("fio")
        self.client, self.device = client, device
        self.log_path = lab.path(f"fio-{device}.log")
        with open(self.log_path, "w") as log:
            # The jobs are processes of its group.
            self.process = subprocess.Popen(arguments(lab.uri(device, client.name), A_DAY_S, block), stdout=log,
                                            stderr=log, cwd=lab.folder, start_new_session=True)
        lab.cleanups.append(self.end)

    def writes(self):
        return next(d["writes"] for d in self.client.status()["devices"] if d["name"] == self.device)

    def log(self):
        with open(self.log_path, errors="replace") as text:
            return text.read()

    def check_running(self):
        check(self.process.poll() is None, f"fio ended: {self.log()}")

    def wait_for_writes(self, count):
        """So many from now on."""
        def written():
            self.check_running()
            return self.writes()
        wait_to_reach(f"fio writes {count} times", written() + count, written)

    def finish(self):
        """What was written until now is read and checked, and nothing was wrong."""
        # Told to end, fio checks nothing any more: by then the blocks of now have been. Twice as many, since
        # the jobs do not write at one speed, nor the one with the trims less than others.
        self.wait_for_writes(2 * self.CONNECTIONS * (BACKLOG + DEPTH))
        self.process.send_signal(signal.SIGINT)
        # 128 is that of a signal.
        check(self.process.wait(timeout=600) == 128 and "err= 0" in self.log(), self.log())

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
