"""A daemon that may tells the kernel that devices hang on it, for each of its threads, and rnbd-client keeps its
memory from being swapped out; one that may not serves all the same, and says so."""

import resource

from harness import *

need("prlimit", "setpriv", "nbdcopy")
# Linux: PF_MEMALLOC_NOIO and PF_LOCAL_THROTTLE of include/linux/sched.h, which PR_SET_IO_FLUSHER sets.
IO_FLUSHER = 0x00080000 | 0x00100000


def flushers(daemon):
    """Of each thread, those that io_uring made as well."""
    pid, found = daemon.process.pid, []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # those of io_uring come and go
            with open(f"/proc/{pid}/task/{thread}/stat") as stat:
                flags = int(stat.read().rsplit(")", 1)[1].split()[6])
            found.append(flags & IO_FLUSHER == IO_FLUSHER)
    return found


def locked_kib(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmLck:"))


def serves(lab, image, name):
    run("nbdcopy", image, lab.uri("vol1", name))
    run("nbdcopy", lab.uri("vol1", name), lab.path("copy"))
    check(same(image, lab.path("copy")), "what was written is read")


def may_lock():
    """As much as it likes: under a limit nothing is locked."""
    return run("prlimit", "--memlock=unlimited:unlimited", "true", ok=False).returncode == 0


with Lab() as lab:
    image = lab.random_file("image", 4 << 20)
    os.chmod(lab.folder, 0o777)
    server = lab.server([export("vol1", lab.path("vol1.img"), "4MiB")], workers=2)
    client = lab.client(server, {"vol1": {}}, workers=2)
    serves(lab, image, "client")
    for daemon in (server, client):
        told, seen = daemon.status()["memory_shortage"], flushers(daemon)
        check(len(seen) >= 2, f"{daemon.name} has workers: {seen}")
        check(seen == [told["io_flusher"]] * len(seen), f"{daemon.name}: {seen}, and says {told}")
        check((locked_kib(daemon) > 0) == told["locked"], f"{daemon.name}: {locked_kib(daemon)} KiB, and says {told}")
    check(not server.status()["memory_shortage"]["locked"], "a server's memory exports may be swapped out")
    check(client.status()["memory_shortage"]["locked"] == may_lock(), client.status()["memory_shortage"])
    client.stop()

    if os.geteuid() == 0:
        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        if limit == resource.RLIM_INFINITY:
            limit = 64 << 20
        client = lab.client(server, {"vol1": {}}, name="plain", session="host-a", prefix=[
            "prlimit", f"--memlock={limit}:{limit}",
            "setpriv", f"--reuid={1_000_000 + os.getpid()}", "--regid=65534", "--clear-groups"])
        check(client.status()["memory_shortage"] == {"io_flusher": False, "locked": False}, client.status())
        check(not any(flushers(client)) and locked_kib(client) == 0, "it may not")
        serves(lab, image, "plain")
