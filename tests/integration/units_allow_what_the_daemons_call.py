"""Every system call of a daemon's life, with each setting that needs calls of its own, is one that its
unit's SystemCallFilter= lets pass."""
import functools
import re

from harness import *

if built_with("RNBD_SANITIZE"):
    skip("a sanitizer makes system calls of its own, and finds no leaks under strace")
need("strace", "systemd-analyze", "nbdsh")
SYSTEMD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../systemd")


@functools.cache
def expanded(name):
    """The system calls of a set, or the one itself."""
    if not name.startswith("@"):
        return frozenset([name])
    listed = run("systemd-analyze", "--no-pager", "syscall-filter", name).stdout.splitlines()[1:]
    words = [line.strip() for line in listed if line.strip() and not line.strip().startswith("#")]
    return frozenset().union(*(expanded(word) for word in words))


def allowed(unit):
    """As systemd.exec(5) has it: the first line is a list of what passes, the others change it."""
    calls = None
    with open(os.path.join(SYSTEMD, unit)) as text:
        for value in re.findall(r"^SystemCallFilter=(.*)$", text.read(), re.MULTILINE):
            named = frozenset().union(*(expanded(word) for word in value.lstrip("~").split()))
            check(calls is not None or not value.startswith("~"), f"{unit} begins with what passes")
            calls = (calls or expanded("@default")) - named if value.startswith("~") else \
                (calls or expanded("@default")) | named
    check(calls, f"{unit} has a filter")
    return calls


def called(trace):
    with open(trace, errors="replace") as lines:
        return {found[1] for line in lines if (found := re.match(r"\d+ +(\w+)\(", line))}


def traced_pid(daemon):
    """strace passes no signals on: of the daemon itself, its child."""
    pid = daemon.process.pid
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        return int(children.read())


with Lab() as lab:
    if run("strace", "-o", lab.path("try"), "true", ok=False).returncode != 0:
        skip("strace may not trace here")
    traces = {name: lab.path(f"{name}.trace") for name in ("server", "client")}

    def traced(name):
        return ["strace", "-f", "-qq", "-s", "0", "-o", traces[name]]

    os.environ["STATE_DIRECTORY"] = lab.folder
    cpu = str(max(os.sched_getaffinity(0)))
    common = {"cpus": cpu, "metrics": {"listen": f"unix:{lab.path('metrics')}"}}
    server = lab.server([export("vol1", lab.path("vol1.img"), "8MiB"),
                         export("vol2", lab.path("vol2.img"), "8MiB"),
                         {"name": "memory", "storage": {"kind": "memory", "size": "8MiB"}}],
                        prefix=traced("server"), **common)
    common["metrics"] = {"listen": f"unix:{lab.path('metrics2')}"}
    client = lab.client(server, {"vol1": {}}, prefix=traced("client"), **common)
    run("nbdsh", "-u", lab.uri("vol1"), "-c",
        "h.pwrite(b'x' * 65536, 0); h.pread(4096, 0); h.trim(65536, 1 << 20); h.zero(65536, 2 << 20); h.flush()")
    server.ctl("exports", "resize", "vol2", "16MiB")
    server.ctl("exports", "remove", "vol2")
    for daemon in (server, client):
        daemon.ctl("config", "apply")
        os.kill(traced_pid(daemon), signal.SIGHUP)
        wait_until("it has read it", lambda: "reading the configuration again" in daemon.log())
    for daemon in (client, server):
        os.kill(traced_pid(daemon), signal.SIGTERM)
        check(daemon.process.wait(timeout=PATIENCE_S) == 0, f"{daemon.name} ends with 0")
    for name, trace in traces.items():
        calls = called(trace)
        check("sched_setaffinity" in calls and "io_uring_enter" in calls, f"a whole life: {calls}")
        # Of the program that starts it.
        left = calls - allowed(f"rnbd-{name}.service.in") - {"execve"}
        check(not left, f"rnbd-{name}.service does not let pass: {sorted(left)}")
        print(f"rnbd-{name}: {len(calls)} system calls, all of them allowed")
