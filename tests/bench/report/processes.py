"""Daemons of a bench: started, watched, accounted for and ended by their pids."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import time

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
CPUS = sorted(os.sched_getaffinity(0))
PATIENCE_S = 30


class Failed(Exception):
    """A daemon or a load did not do what it should: a row of the report, not its end."""


class Interrupted(Exception):
    """A signal has told us to end."""


SIGNALS = []  # that came


def remember_signals():
    """A handler that raised could do so anywhere: where a process was made and nobody knows it yet."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: SIGNALS.append(number))


def check_interrupted():
    """Called where all that was started is known, in everything that waits; not by what cleans up."""
    if SIGNALS:
        raise Interrupted


@contextlib.contextmanager
def writing(path):
    """What fails in a write or at the end of one does not say where."""
    try:
        with open(path, "wb") as file:
            yield file
    except OSError as wrong:
        raise OSError(wrong.errno, wrong.strerror, path)


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


def rss_bytes(pid):
    """Resident memory, what is shared with others included."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return sum(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS:"))
    except OSError:
        return 0  # it has ended


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
        self.commands = []

    def start(self, role, *words, ready, background=False):
        """ready: ("tcp", port) or ("unix", path). background: it goes there, which is waited for."""
        words = [str(word) for word in words]
        self.commands.append(shlex.join(words))
        log_path = os.path.join(self.folder, f"{role}-{len(self.started)}.log")
        with open(log_path, "wb") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True)
        self.started.append((role, process.pid, process))
        deadline = time.monotonic() + PATIENCE_S
        if background:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            session = session_of(words) if process.returncode == 0 else None
            if session:
                self.started[-1] = (role, session, None)
        while not answers(*ready):
            if process.poll() or not self.pids(role) or time.monotonic() > deadline:
                with open(log_path, errors="replace") as log:
                    raise Failed(f"{words[0]} does not listen: {log.read()[-300:].strip()}")
            check_interrupted()
            time.sleep(0.02)

    def pids(self, role=None):
        return in_sessions({session for its, session, _ in self.started if role in (None, its)})

    def cpu_s(self, role=None):
        return sum(known[1] for known in map(stat, self.pids(role)) if known)

    def rss_bytes(self):
        return sum(map(rss_bytes, self.pids()))

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


def session_of(words):
    """Who has these words and has left for the background leads a session; None if it has ended."""
    while True:
        found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if said_by(pid) == words]
        for pid in found:
            known = stat(pid)
            if known and known[0] == pid:
                return pid
        if not found:
            return None
        time.sleep(0.005)  # it has not come to setsid() yet


def said_by(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().split("\0")[:-1]
    except (OSError, UnicodeDecodeError):
        return None  # it has ended, or is none of ours


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
