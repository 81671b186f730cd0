"""Real daemons in a folder of their own, judged by tools that we did not write.

A test is a script whose name is its claim. It exits with 0 if the claim holds and with 77 if it
cannot be tried here (aloud). RNBD_BUILD names the build folder.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Of every daemon whose configuration does not say it, and as many connections for its sessions.
WORKERS = int(os.environ.get("RNBD_WORKERS", "1"))
BUILD = os.environ.get("RNBD_BUILD", os.path.join(os.path.dirname(__file__), "../../build"))
# Debian's tools before other installations of the same names: nbdsh wants Debian's python3.
os.environ["PATH"] = "/usr/bin:/usr/sbin:/bin:/sbin:" + os.environ.get("PATH", "")
# Sanitized and loaded machines are slow; nothing here asserts a time.
PATIENCE_S = 300
# A sanitized rnbdctl takes a third of the time with these, and its own tests are without.
QUICK_TOOL = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") +
                  ":detect_leaks=0:detect_stack_use_after_return=0:malloc_context_size=2")
# For a session where no path may be lost, and "heartbeat" for its server: on a busy machine a daemon is silent for seconds.
PATIENT = {"heartbeat": {"interval": "1s", "timeout": "60s"}, "request_deadline": "30s"}


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            skip(f"{program} is not installed")


def need_root():
    if os.geteuid() != 0:
        skip("needs root")


def built_with(name):
    """What the build folder's CMake has under that name; nothing where it has not."""
    with open(os.path.join(BUILD, "CMakeCache.txt")) as cache:
        return next((line.split("=", 1)[1].strip() for line in cache if line.startswith(f"{name}:")), "")


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def wait_until(what, condition, seconds=PATIENCE_S):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"timed out waiting until {what}")


def wait_to_reach(what, wanted, value):
    """As long as it grows: how quickly it does is up to the machine."""
    seen = value()
    while seen < wanted:
        seen = wait_until(what, lambda before=seen: (now := value()) > before and now)


def run(*command, ok=True, **options):
    """Runs a tool; its output is returned, and shown if it fails."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace",
                            timeout=options.pop("timeout", 600), **options)
    if ok and result.returncode != 0:
        print(f"$ {' '.join(str(word) for word in command)}\n{result.stdout}{result.stderr}")
        raise AssertionError(f"{command[0]} ended with {result.returncode}")
    return result


_ports_given = set()


def free_port():
    """Of those below what connections are given for their own end: a server that is away for a while finds it again."""
    while True:
        port = random.SystemRandom().randrange(10000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        if port not in _ports_given:
            _ports_given.add(port)
            return port


class Daemon:
    """A process of ours: started, watched, ended by its pid."""

    def __init__(self, lab, program, name, config, prefix=()):
        self.lab, self.program, self.name = lab, program, name
        self.prefix = list(prefix)
        self.config_path = lab.path(f"{name}.yaml")
        self.control = lab.path(f"{name}.ctl")
        self.log_path = lab.path(f"{name}.log")
        config = dict(config, control=self.control)
        if WORKERS > 1:
            config.setdefault("workers", WORKERS)
            for session in config.get("sessions", []):
                session.setdefault("connections", WORKERS)
        with open(self.config_path, "w") as out:
            json.dump(config, out, indent=1)  # JSON is YAML
        self.process = None

    def start(self, wait=True):
        log = open(self.log_path, "a")
        self.process = subprocess.Popen(
            self.prefix + [os.path.join(BUILD, self.program, self.program),
                           "--config", self.config_path],
            stderr=log, stdout=log, stdin=subprocess.DEVNULL)
        log.close()
        if wait:
            wait_until(f"{self.name} answers", self.answers)
        return self

    def answers(self):
        check(self.process.poll() is None, f"{self.name} ended: {self.log()[-2000:]}")
        try:
            return self.answer("status")["ok"]
        except AssertionError:
            return False

    def ctl(self, *words, ok=True):
        return run(os.path.join(BUILD, "rnbdctl", "rnbdctl"), "--socket", self.control, *words,
                   ok=ok, env=QUICK_TOOL)

    def ask(self, command, **arguments):
        """As rnbdctl does, without its process: a sanitized one takes as long as a hundred of these, and tests ask often."""
        answer = self.answer(command, **arguments)
        check(answer["ok"], f"{self.name}: {command}: {answer}")
        return answer["result"]

    def answer(self, command, **arguments):
        """The whole answer, which may be an error."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(PATIENCE_S)
            try:
                control.connect(self.control)
                control.sendall(json.dumps({"command": command, "arguments": arguments}).encode() + b"\n")
                line = control.makefile().readline()
            except OSError as error:
                raise AssertionError(f"{self.name}: {command}: {error}") from error
        check(line.endswith("\n"), f"{self.name}: {command}: {line!r} is no whole answer")
        return json.loads(line)

    def status(self):
        return self.ask("status")

    def log(self):
        with open(self.log_path, errors="replace") as text:
            return text.read()

    def config_with(self, change):
        """Changes the configuration that the next start() reads."""
        with open(self.config_path) as text:
            config = json.load(text)
        change(config)
        with open(self.config_path, "w") as out:
            json.dump(config, out, indent=1)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_S)

    def running(self):
        return self.process is not None and self.process.poll() is None


class Lab:
    """A temporary folder with daemons. Use it as a context."""

    def __init__(self):
        # Short: the path of a Unix socket has 107 bytes.
        self.folder = tempfile.mkdtemp(prefix="rnbd-")
        self.daemons = []
        self.cleanups = []

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        # Clients before servers: their last flush wants an answer.
        for daemon in sorted(self.daemons, key=lambda d: d.program):
            if daemon.process is None:
                continue
            if daemon.running():
                daemon.process.terminate()
            try:
                daemon.process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                daemon.process.kill()
                daemon.process.wait()
                if kind is None:
                    raise AssertionError(f"{daemon.name} did not end on SIGTERM")
        def own_errors(daemon):
            return [line for line in daemon.log().splitlines()
                    if any(word in line for word in ("assertion failed", "Sanitizer", "runtime error"))]

        bad = [d for d in self.daemons if own_errors(d)] if kind is None else self.daemons
        for daemon in bad:
            print(f"--- {daemon.name}.log\n{daemon.log()[-8000:]}")
            print("\n".join(own_errors(daemon)))
        for cleanup in reversed(self.cleanups):
            cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)
        if kind is None:
            check(not bad, "a daemon reported an error of its own")

    def path(self, name):
        return os.path.join(self.folder, name)

    def server(self, exports, name="server", port=None, prefix=(), host="127.0.0.1", **config):
        port = port or free_port()
        daemon = Daemon(self, "rnbd-server", name, dict(
            config, listen=[{"tcp": f"{host}:{port}"}], exports=exports), prefix)
        daemon.port = port
        self.daemons.append(daemon)
        return daemon.start()

    def client(self, server, devices, name="client", session="host-a", prefix=(),
               host="127.0.0.1", wait_for_devices=True, session_options=None, **config):
        """devices: {name: {volume, access, ...}}; each gets a Unix socket <name>.sock."""
        daemon = Daemon(self, "rnbd-client", name, dict(
            config, sessions=[dict(session_options or {}, name=session,
                           paths=[{"tcp": f"{host}:{server.port}"}])],
            devices=[dict({"volume": device, "access": "rw"}, **options, name=device,
                          session=session, nbd=f"unix:{self.socket(name, device)}")
                     for device, options in devices.items()]), prefix)
        self.daemons.append(daemon)
        daemon.start()
        if wait_for_devices:
            wait_until("the devices are open", lambda: all(
                d["state"] == "open" for d in daemon.status()["devices"]))
        return daemon

    def control_uri(self, device):
        """Of a device whose socket is beside the control socket."""
        return f"nbd+unix:///{device}?socket={self.path(device)}.sock"

    def socket(self, client, device):
        return self.path(f"{client}-{device}.sock")

    def uri(self, device, client="client"):
        return f"nbd+unix:///{device}?socket={self.socket(client, device)}"

    def random_file(self, name, size):
        path = self.path(name)
        with open(path, "wb") as out:
            left = size
            while left:
                part = random.randbytes(min(left, 1 << 20))
                out.write(part)
                left -= len(part)
        return path


def export(name, path, size=None, session="host-a", access="rw", **options):
    result = dict({"name": name, "path": path, "allow": [{"session": session, "access": access}]},
                  **options)
    if size is not None:
        result["size"] = size
    return result


def same(a, b):
    return run("cmp", a, b, ok=False).returncode == 0


@contextlib.contextmanager
def small_tmpfs(lab, name, size):
    """A file system that fills up."""
    need_root()
    where = lab.path(name)
    os.mkdir(where)
    if run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", where, ok=False).returncode != 0:
        skip("cannot mount a tmpfs here")
    lab.cleanups.append(lambda: run("umount", "-l", where, ok=False))
    yield where
