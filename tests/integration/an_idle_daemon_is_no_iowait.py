"""Daemons with nothing to do are idle in the kernel's books (top's wa, /proc/pressure/io), not waiting for I/O."""
from harness import *

KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
if KERNEL < (6, 15):
    skip("Linux before 6.15 counts whoever waits in an io_uring as waiting for I/O")


def waiting_for_io():
    """Threads of the whole machine that wait for I/O now."""
    with open("/proc/stat") as stat:
        return next(int(line.split()[1]) for line in stat if line.startswith("procs_blocked "))


def mostly_nobody_waits():
    looks = []
    while len(looks) < 40:
        looks.append(waiting_for_io())
        time.sleep(0.01)
    return looks.count(0) > len(looks) / 2


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "64MiB", io="direct")])
    client = lab.client(server, {"vol1": {}})
    run("nbdcopy", "--flush", lab.random_file("in", 8 << 20), lab.uri("vol1"))
    # Others of this machine may wait now and then; an idle daemon that counted would nearly always.
    wait_until("mostly nobody of this machine waits for I/O", mostly_nobody_waits)
    check(server.running() and client.running(), "both daemons run")
