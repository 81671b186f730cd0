"""The bpftrace scripts of docs/examples see each request of both daemons, once."""
import re

from harness import *

need_root()
need("bpftrace", "nbdcopy")
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/examples")
able = run("bpftrace", "-e", 'BEGIN { printf("able\\n"); exit(); }', ok=False)
if "able" not in able.stdout:
    skip(f"bpftrace cannot run here: {(able.stdout + able.stderr).strip()[-300:]}")


class Script:
    """One that looks at a daemon, until it is stopped."""

    def __init__(self, lab, daemon):
        program = os.path.abspath(os.path.join(BUILD, daemon.program, daemon.program))
        with open(os.path.join(EXAMPLES, f"{daemon.program}.bt")) as text:
            script = text.read()
        check(f"usdt:/usr/sbin/{daemon.program}:" in script, "it names the installed program")
        path = lab.path(f"{daemon.program}.bt")
        with open(path, "w") as out:
            out.write(script.replace(f"/usr/sbin/{daemon.program}", program))
        self.log = lab.path(f"{daemon.program}.bt.log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(["bpftrace", "-p", str(daemon.process.pid), path],
                                            stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        lab.cleanups.append(self.process.kill)

    def text(self):
        with open(self.log) as log:
            return log.read()

    def probes(self):
        """File descriptors that it has for events: one each that is attached."""
        check(self.process.poll() is None, f"bpftrace has ended: {self.text()}")
        folder, found = f"/proc/{self.process.pid}/fd", 0
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                found += "perf_event" in os.readlink(f"{folder}/{name}")
        return found

    def to_attach(self):
        """How many of them it has said there are; each is at one place or at several."""
        said = re.search(r"Attaching (\d+) probes", self.text())
        return int(said[1]) if said else None

    def counts(self):
        """{name: requests in its histogram, or its value}, when it was stopped as by Ctrl-C."""
        # bpftrace 0.17 misses a signal that comes while it is not waiting for events
        # (mended there in 0058d41c3), as Ctrl-C by hand is pressed again. It prints what it has only
        # at its end; from then on a signal would kill it.
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            check(time.monotonic() < deadline, f"bpftrace goes on: {self.text()}")
            if not re.search("^@", self.text(), re.MULTILINE):
                self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=5)
        check(self.process.returncode == 0, self.text())
        print("\n".join(line for line in self.text().splitlines() if re.match(r"[@\[(]", line)))
        found = {}
        for name, body in re.findall(r"^(@\w+(?:\[\d+\])?): ?(\d*\n(?:[\[(].*\n)*)", self.text(), re.MULTILINE):
            numbers = re.findall(r"^\S+(?: \S+)? +(\d+) \|", body, re.MULTILINE) or [body]
            found[name] = sum(int(number) for number in numbers)
        return found


def all_attached(scripts):
    """All that they attach; none of them says when that is done."""
    before = []

    def settled():
        before.append([script.probes() for script in scripts])
        time.sleep(0.2)
        wanted = [script.to_attach() for script in scripts]
        return all(wanted) and all(has >= to_have >= 5 for has, to_have in zip(before[-1], wanted)) and \
            before[-10:] == 10 * [before[-1]]
    wait_until("they are attached", settled)


with Lab() as lab:
    if "Provider: rnbd" not in run("readelf", "-nW", os.path.join(BUILD, "rnbd-server/rnbd-server")).stdout:
        skip("built without probes: sys/sdt.h (systemtap-sdt-dev) was not found")
    server = lab.server([export("vol1", lab.path("vol1.img"), "16MiB")])
    client = lab.client(server, {"vol1": {}})
    scripts = [Script(lab, client), Script(lab, server)]
    source = lab.random_file("in", 1 << 20)
    kinds = ("reads", "writes", "others")

    def counters():
        session = server.status()["sessions"][0]
        return {kind: session[kind] for kind in kinds}

    all_attached(scripts)
    before = counters()
    for _ in range(5):
        run("nbdcopy", "--flush", source, lab.uri("vol1"))
        # What is allocated is asked for as a request, too, and not counted with these.
        run("nbdcopy", "--no-extents", lab.uri("vol1"), "null:")
    done = {kind: counters()[kind] - before[kind] for kind in kinds}
    at_client, at_server = (script.counts() for script in scripts)
    total = sum(done.values())
    check(done["reads"] > 0 and done["writes"] > 0 and done["others"] > 0, done)
    check(at_client["@server_and_way_us"] == total, (at_client, done))
    # A request that was cut has several.
    check(0 < at_client["@all_us"] <= total and
          at_client["@waited_for_permit_us"] == at_client["@all_us"], (at_client, done))
    check(at_server["@server_us"] == total, (at_server, done))
    check([at_server[f"@storage_us[{operation}]"] for operation in (0, 1, 2)] == list(done.values()),
          (at_server, done))
    check("@errors" not in at_server, at_server)
