"""Files of a file system that another process has to answer for, and can be kept from it."""
import contextlib
import os
import signal
import subprocess

from harness import PATIENCE_S, need, run, skip, wait_until

SIZE = 4 << 20

need("nbdfuse", "nbdkit")
if not os.path.exists("/dev/fuse"):
    skip("/dev/fuse is not there")


def mounted(lab, name):
    """Of one file, and by which process."""
    folder = lab.path(name)
    os.mkdir(folder)
    process = subprocess.Popen(["nbdfuse", folder, "[", "nbdkit", "--exit-with-parent", "memory", str(SIZE), "]"])

    def end():
        run("fusermount3", "-u", "-z", folder, ok=False)
        process.wait(timeout=PATIENCE_S)

    lab.cleanups.append(end)
    file = os.path.join(folder, "nbd")
    wait_until("it is mounted or has failed", lambda: process.poll() is not None or os.path.exists(file))
    if process.poll() is not None:
        skip("nbdfuse cannot mount here")
    return file, process


@contextlib.contextmanager
def stopped(*processes):
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)
