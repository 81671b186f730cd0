"""Both daemons tell the service manager that they are ready, live, read their files again, and stop.

As systemd hears it from a unit with Type=notify and WatchdogSec=. A daemon that is stopped in its
tracks says nothing more, which is what ends it there; so does one of whose workers one is.
"""
import ctypes
import queue
import threading

from harness import *


class Manager:
    """What systemd would be. It listens all the time: who tells it something waits while it does not."""

    def __init__(self, path):
        self.prefix = ["env", f"NOTIFY_SOCKET={path}", "WATCHDOG_USEC=200000"]
        self.said = queue.Queue()
        self.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ear.bind(path)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            self.said.put(self.ear.recv(4096).decode().splitlines())

    def hear(self):
        return self.said.get(timeout=PATIENCE_S)

    def hear_more(self):
        """What is no keep-alive."""
        heard = self.hear()
        while heard == ["WATCHDOG=1"]:
            heard = self.hear()
        return heard

    def forget(self):
        """What was said until now."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.said.get_nowait()


def alive(manager):
    for _ in range(3):
        check(manager.hear() == ["WATCHDOG=1"], "keep-alives come one after another")


def stopped_and_continued(daemon, manager):
    daemon.process.send_signal(signal.SIGSTOP)
    wait_until(f"{daemon.name} is stopped", lambda: " T " in open(
        f"/proc/{daemon.process.pid}/stat").read())
    wait_until(f"{daemon.name} is silent", lambda: silent(manager))
    daemon.process.send_signal(signal.SIGCONT)
    alive(manager)


def one_worker_stopped_and_continued(daemon, manager):
    """As a system call would that does not return: the thread is stopped by ptrace(2), the others go on."""
    seize, interrupt, go_on, detach, every_child = 0x4206, 0x4207, 7, 17, 0x40000000
    io_uring_enter = "426"
    libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(request):
        check(libc.ptrace(request, worker, None, None) == 0, f"ptrace: {os.strerror(ctypes.get_errno())}")

    folder = f"/proc/{daemon.process.pid}/task"
    worker = next(int(task) for task in os.listdir(folder)
                  if open(f"{folder}/{task}/comm").read().strip() == "rnbd-worker-2")
    if libc.ptrace(seize, worker, None, None) != 0:
        return print("SKIPPED: no ptrace(2) here")
    # Where it waits for work: one that is stopped at its turn keeps the others from theirs.
    where = None
    for _ in range(100):
        if where:
            ptrace(go_on)
            time.sleep(0.01)
        ptrace(interrupt)
        os.waitpid(worker, every_child)
        with open(f"{folder}/{worker}/syscall") as state:
            where = state.read().split()[0]
        if where == io_uring_enter:
            break
    check(where == io_uring_enter, f"the worker never waits: it was stopped in {where}")
    try:
        wait_until(f"{daemon.name} is silent", lambda: silent(manager))
        daemon.ctl("status")
    finally:
        ptrace(detach)
    alive(manager)


def silent(manager):
    """For longer than two keep-alives are apart."""
    manager.forget()
    time.sleep(1)
    return manager.said.empty()


def reloaded(daemon, manager, status):
    """As Type=notify-reload wants it; also with a file that is refused."""
    for config in (None, "nonsense: [1]\n"):
        if config:
            with open(daemon.config_path, "w") as out:
                out.write(config)
        before = time.monotonic_ns() // 1000
        daemon.process.send_signal(signal.SIGHUP)
        heard = manager.hear_more()
        check(heard[0] == "RELOADING=1" and heard[1].startswith("MONOTONIC_USEC="), f"told: {heard}")
        told = int(heard[1].removeprefix("MONOTONIC_USEC="))
        check(before <= told <= time.monotonic_ns() // 1000, f"the time of the reload: {heard}")
        heard = manager.hear_more()
        check(heard == ["READY=1", f"STATUS={status}"], f"ready again: {heard}")
        if not config:
            check(manager.hear_more() == [f"STATUS={status}"], "what it does now")


def ended(daemon, manager):
    daemon.process.send_signal(signal.SIGTERM)
    heard = manager.hear_more()
    check(heard == ["STOPPING=1", "STATUS=finishing what is in flight"], f"told: {heard}")
    check(daemon.process.wait(timeout=PATIENCE_S) == 0, f"{daemon.name} ended with 0")


with Lab() as lab:
    managers = {name: Manager(lab.path(f"{name}.notify")) for name in ("server", "client", "three")}
    three = lab.server([], name="three", workers=3, prefix=managers["three"].prefix)
    managers["three"].hear_more()
    alive(managers["three"])
    one_worker_stopped_and_continued(three, managers["three"])
    ended(three, managers["three"])
    server = lab.server([export("vol1", lab.path("vol1.img"), "16MiB")],
                        prefix=managers["server"].prefix)
    heard = managers["server"].hear()
    check(heard == ["READY=1", "STATUS=serving 1 export"], f"the server is ready: {heard}")
    client = lab.client(server, {"vol1": {}}, prefix=managers["client"].prefix)
    heard = managers["client"].hear()
    check(heard == ["READY=1", "STATUS=mapping 1 device"], f"the client is ready: {heard}")
    for daemon in (client, server):
        alive(managers[daemon.name])
        stopped_and_continued(daemon, managers[daemon.name])
    reloaded(client, managers["client"], "mapping 1 device")
    reloaded(server, managers["server"], "serving 1 export")
    for daemon in (client, server):
        ended(daemon, managers[daemon.name])
    print("both told when they were ready, that they live, that they reload, and that they stop")
