"""What more of something costs: volumes, sessions, connections, requests under way.

The load is constant but for what is counted; it reads from storage of kind null, so that what is seen
is the protocol's cost. The load is volume_load, on librnbd.
"""

import json
import os
import statistics
import subprocess
import time

from processes import CPUS, Daemons, Failed, end, free_port, machine_s

# What is counted -> (title, options of volume_load at n, the largest n that is allowed).
KINDS = {
    "volumes": ("n volumes of one session, 32 reads under way over all of them",
                lambda n: {"volumes": n}, 1 << 20),
    "sessions": ("n sessions, 32 reads under way over all of them",
                 lambda n: {"sessions": n, "depth": max(32, n)}, 1 << 20),
    "idle-sessions": ("n sessions, 32 reads under way on the first, the others idle",
                      lambda n: {"sessions": n, "busy": 1}, 1 << 20),
    "connections": ("n connections of one session, 32 reads under way",
                    lambda n: {"connections": n}, 64),
    "depth": ("n reads under way on one session", lambda n: {"depth": n}, 1 << 20),
}


class Load:
    """volume_load, step by step."""

    def __init__(self, bench, options, cpus):
        words = [bench.built("tests/bench/volume_load")]
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cpus))

    def step(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"volume_load: {self.process.stderr.read()[-300:].strip()}")
        return json.loads(line)

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup") as file:
            return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))

    def close(self):
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()
        end(self.process.pid, self.process)


def start_server(bench, options):
    """(daemons, port); every volume may be opened by every session."""
    folder = os.path.join(bench.folder, f"scaling-{time.monotonic_ns()}")
    os.makedirs(folder)
    port = free_port()
    allow = [{"session": f"load-{i}", "access": "ro"} for i in range(options.get("sessions", 1))]
    config = {"listen": [{"tcp": f"127.0.0.1:{port}"}], "control": os.path.join(folder, "ctl"),
              "exports": [{"name": f"volume-{i}", "storage": {"kind": "null", "size": 1 << 30},
                           "allow": allow} for i in range(options.get("volumes", 1))]}
    path = os.path.join(folder, "server.yaml")
    with open(path, "w") as file:
        json.dump(config, file)
    daemons = Daemons(folder)
    try:
        daemons.start("server", bench.built("rnbd-server/rnbd-server"), "--config", path,
                      ready=("tcp", port))
    except BaseException:
        daemons.stop()
        raise
    return daemons, port


def measure(bench, kind, n):
    options = KINDS[kind][1](n)
    daemons, port = start_server(bench, options)
    load = None
    try:
        empty = daemons.resident_bytes()
        cpus = {CPUS[0]} if bench.one_cpu else set(CPUS)
        daemons.place("server", cpus)
        load = Load(bench, options | {"path": f"127.0.0.1:{port}", "seconds": max(1, round(bench.seconds)),
                                      "quiet-seconds": max(1, round(bench.seconds))}, cpus)
        load.step()
        open_server, open_load = daemons.resident_bytes(), load.resident_bytes()
        cpu, machine, began = daemons.cpu_s(), machine_s(), time.monotonic()
        load.go_on()
        loaded = load.step()
        wall_s = time.monotonic() - began
        server_s = daemons.cpu_s() - cpu
        foreign_s = machine_s() - machine - server_s - loaded["cpu_s"]
        requests = loaded["requests"]
        if requests == 0:
            raise Failed("volume_load reports no request")
        point = {"n": n, "iops": requests / loaded["seconds"], "server_us": server_s / requests * 1e6,
                 "load_us": loaded["cpu_s"] / requests * 1e6,
                 "server_bytes": daemons.resident_bytes(), "load_bytes": load.resident_bytes(),
                 "server_each": max(0, open_server - empty) / n, "load_each": open_load / n,
                 "others_share": max(0.0, foreign_s) / wall_s / os.cpu_count()}
        cpu = daemons.cpu_s()
        load.go_on()
        quiet = load.step()
        point["server_idle"] = (daemons.cpu_s() - cpu) / quiet["seconds"]
        point["load_idle"] = quiet["cpu_s"] / quiet["seconds"]
        load.go_on()
        load.process.wait(timeout=60)
        return point
    finally:
        if load:
            load.close()
        daemons.stop()


def run(bench, kinds, counts, rounds, tell, fail):
    """{kind: [medians of each count]}; rounds are interleaved."""
    found = {}
    for number in range(rounds):
        for kind in kinds:
            for n in sorted({min(count, KINDS[kind][2]) for count in counts}):
                tell(f"round {number + 1}: scaling, {n} {kind}")
                try:
                    found.setdefault(kind, {}).setdefault(n, []).append(measure(bench, kind, n))
                except Failed as failed:
                    fail(f"scaling, {n} {kind}: {failed}")
    return {kind: [{name: statistics.median(point[name] for point in points) for name in points[0]}
                   for points in by_count.values() if points] for kind, by_count in found.items()}
