"""Daemons of a bench: started, watched, accounted for and ended by their pids."""

import os
import signal
import socket
import subprocess
import time

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
CPUS = sorted(os.sched_getaffinity(0))
PATIENCE_S = 30


class Failed(Exception):
    """A daemon or a load did not do what it should: a row of the report, not its end."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stat(pid):
    """(session, CPU seconds, also of children that have ended) or None."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return int(fields[3]), sum(int(field) for field in fields[11:15]) * TICK_S


def machine_s():
    """CPU seconds that anybody has used, without idling and waiting."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, *_ = (
            int(field) for field in file.readline().split()[1:])
    return (user + nice + system + irq + softirq) * TICK_S


class Daemons:
    """Each begins a session (in the kernel's sense), which its children are found by."""

    def __init__(self, folder):
        self.folder = folder
        self.started = []  # (role, session, Popen or None)

    def start(self, role, *words, ready, pid_file=None):
        """ready: ("tcp", port) or ("unix", path). pid_file: of one that goes into the background."""
        log_path = os.path.join(self.folder, f"{role}-{len(self.started)}.log")
        with open(log_path, "wb") as log:
            process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, start_new_session=True)
        self.started.append((role, process.pid, process))
        deadline = time.monotonic() + PATIENCE_S
        while not answers(*ready):
            gone = process.poll() is not None and (pid_file is None or process.returncode != 0)
            if gone or time.monotonic() > deadline:
                with open(log_path, errors="replace") as log:
                    raise Failed(f"{words[0]} does not listen: {log.read()[-300:].strip()}")
            time.sleep(0.02)
        if pid_file:
            process.wait(timeout=PATIENCE_S)
            with open(pid_file) as file:
                pid = int(file.read())
            self.started[-1] = (role, pid, None)

    def pids(self, role=None):
        return in_sessions({session for its, session, _ in self.started if role in (None, its)})

    def cpu_s(self, role=None):
        return sum(known[1] for known in map(stat, self.pids(role)) if known)

    def resident_bytes(self, role=None):
        total = 0
        for pid in self.pids(role):
            try:
                with open(f"/proc/{pid}/smaps_rollup") as file:
                    total += sum(int(line.split()[1]) << 10 for line in file
                                 if line.startswith("Pss:"))
            except OSError:
                pass  # it has ended
        return total

    def threads(self, role=None):
        return sum(len(os.listdir(f"/proc/{pid}/task")) for pid in self.pids(role))

    def place(self, role, cpus):
        for pid in self.pids(role):
            try:
                for thread in os.listdir(f"/proc/{pid}/task"):
                    os.sched_setaffinity(int(thread), cpus)
            except OSError:
                pass  # it has ended

    def stop(self):
        """In the reverse order of their start: who depends on others goes first."""
        for _, session, process in reversed(self.started):
            end(session, process)
        self.started.clear()


def in_sessions(sessions):
    found = []
    for name in os.listdir("/proc"):
        known = stat(name) if name.isdigit() else None
        if known and known[0] in sessions:
            found.append(int(name))
    return found


def signal_to(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def end(session, process=None):
    """The processes of a session that was begun here; process: its first, if that is our child."""
    deadline = time.monotonic() + 10
    signal_to(in_sessions({session}), signal.SIGTERM)
    while in_sessions({session}) and time.monotonic() < deadline:
        if process:
            process.poll()  # one that has ended is not one any more
        time.sleep(0.01)
    signal_to(in_sessions({session}), signal.SIGKILL)
    if process:
        process.wait()


def answers(kind, where):
    family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
    with socket.socket(family) as probe:
        return probe.connect_ex(where if kind == "unix" else ("127.0.0.1", where)) == 0
