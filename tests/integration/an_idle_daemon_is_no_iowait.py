"""Daemons with nothing to do are idle in the kernel's books (top's wa, /proc/pressure/io), not waiting for I/O."""
import signal
import statistics

from harness import *

ROUNDS = 15
BATCHES = 5


def waiting_for_io():
    """Threads of the whole machine that wait for I/O, in the middle of some looks."""
    looks = []
    while len(looks) < 10:
        time.sleep(0.01)
        with open("/proc/stat") as stat:
            looks += [int(line.split()[1]) for line in stat if line.startswith("procs_blocked ")]
    return statistics.median(looks)


def how_many_more_wait(*idle):
    """With these running than without."""
    time.sleep(0.1)
    running = waiting_for_io()
    for daemon in idle:
        daemon.process.send_signal(signal.SIGSTOP)
    stopped = waiting_for_io()
    for daemon in idle:
        daemon.process.send_signal(signal.SIGCONT)
    return running - stopped


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "64MiB", io="buffered")])
    client = lab.client(server, {"vol1": {}})
    run("nbdcopy", "--flush", lab.random_file("in", 8 << 20), lab.uri("vol1"))
    # Others of this machine may wait, too: what counts is how many fewer there are without the two,
    # which a daemon that waits makes one fewer every time, and others only by chance.
    batches = []
    while not batches or (statistics.median(batches[-1]) >= 1 and len(batches) < BATCHES):
        batches.append([how_many_more_wait(server, client) for _ in range(ROUNDS)])
    check(statistics.median(batches[-1]) < 1, f"so many more waited while both were idle: {batches}")
