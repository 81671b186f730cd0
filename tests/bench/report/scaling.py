"""What more of something costs: volumes, sessions, connections, requests under way.

The load is constant but for what is counted; it reads from storage of kind null, so that what is seen
is the protocol's cost. The load is volume_load, on librnbd.
"""

import contextlib
import json
import os
import select
import statistics
import subprocess
import time

from processes import CPUS, Daemons, Failed, check_interrupted, end, free_port, machine_s, rss_bytes, writing

# The deepest queue of a server with requests of the default size is 1024; of each a session keeps one
# for messages of its own.
DEPTH_MAX = 1024 - 1
# What is counted -> (title, options of volume_load at n, the largest n that is allowed).
KINDS = {
    "volumes": ("n volumes of one session, 32 reads under way over all of them",
                lambda n: {"volumes": n}, 1 << 20),
    "sessions": ("n sessions, one read under way on each, 32 on all at the least",
                 lambda n: {"sessions": n, "depth": max(32, n)}, 1 << 20),
    "idle-sessions": ("n sessions, 32 reads under way on the first, the others idle",
                      lambda n: {"sessions": n, "busy": 1}, 1 << 20),
    "connections": ("n connections of one session, 32 reads under way",
                    lambda n: {"connections": n}, 64),
    "depth": ("n reads under way on one session", lambda n: {"depth": n}, DEPTH_MAX),
}
# Whose sessions are idle while the load goes on. Each has a heartbeat every 2 s: some of these, in
# whole, are measured when nothing else is done.
IN_HEARTBEATS = {"idle-sessions"}
HEARTBEATS_SECONDS = 8
# Whose memory is looked at; more depth is memory of the load's own.
IN_MEMORY = set(KINDS) - {"depth"}


class Load:
    """volume_load, step by step."""

    def __init__(self, bench, options, cpus):
        words = [bench.built("tests/bench/volume_load")]
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                        stderr=subprocess.PIPE, start_new_session=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cpus))

    def step(self):
        while not select.select([self.process.stdout], [], [], 0.1)[0]:
            check_interrupted()
        line = self.process.stdout.readline()
        if not line:
            said = self.process.stderr.read().decode(errors="replace")
            raise Failed(f"volume_load: {said[-300:].strip()}")
        return json.loads(line)

    def go_on(self):
        with contextlib.suppress(BrokenPipeError):  # the next step says why
            self.process.stdin.write(b"\n")

    def close(self):
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()
        end(self.process.pid, self.process)


def queue_depth_of(options):
    """As the load needs it on each session, which has no more under way; the default at the least."""
    busy = options.get("busy", options.get("sessions", 1))
    return max(512, -(-options.get("depth", 32) // busy) + 1)


def config_of(options, port, control):
    """A server whose volumes may all be opened by every session."""
    allow = [{"session": f"load-{i}", "access": "ro"} for i in range(options.get("sessions", 1))]
    return {"listen": [{"tcp": f"127.0.0.1:{port}"}], "control": control, "queue_depth": queue_depth_of(options),
            "exports": [{"name": f"volume-{i}", "storage": {"kind": "null", "size": 1 << 30},
                         "allow": allow} for i in range(options.get("volumes", 1))]}


def start_server(bench, options):
    """(daemons, port)"""
    folder = os.path.join(bench.folder, f"scaling-{time.monotonic_ns()}")
    os.makedirs(folder)
    port = free_port()
    config = config_of(options, port, os.path.join(folder, "ctl"))
    path = os.path.join(folder, "server.yaml")
    with writing(path) as file:
        file.write(json.dumps(config).encode())
    daemons = Daemons(folder)
    try:
        daemons.start("server", bench.built("rnbd-server/rnbd-server"), "--config", path,
                      ready=("tcp", port))
    except BaseException:
        daemons.stop()
        raise
    return daemons, port


def seconds_of(options):
    """How long the load goes on: volume_load takes whole ones."""
    return max(1, round(options.seconds))


def quiet_seconds_of(kind, options):
    return max(seconds_of(options), HEARTBEATS_SECONDS if kind in IN_HEARTBEATS else 0)


def measure(bench, kind, n):
    options = KINDS[kind][1](n)
    daemons, port = start_server(bench, options)
    load = None
    try:
        cpus = {CPUS[0]} if bench.one_cpu else set(CPUS)
        daemons.place("server", cpus)
        load = Load(bench, options | {"path": f"127.0.0.1:{port}", "seconds": seconds_of(bench),
                                      "quiet-seconds": quiet_seconds_of(kind, bench)}, cpus)
        load.step()
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
                 "others_share": max(0.0, foreign_s) / wall_s / os.cpu_count()}
        cpu = daemons.cpu_s()
        load.go_on()
        quiet = load.step()
        point["server_idle"] = (daemons.cpu_s() - cpu) / quiet["seconds"]
        point["load_idle"] = quiet["cpu_s"] / quiet["seconds"]
        if kind in IN_MEMORY:
            point |= {"server_rss_bytes": daemons.rss_bytes(), "load_rss_bytes": rss_bytes(load.process.pid)}
        return point
    finally:
        if load:
            load.close()
        daemons.stop()


def counts_of(kind, counts):
    return sorted({min(count, KINDS[kind][2]) for count in counts})


def medians(points):
    return {name: statistics.median(point[name] for point in points) for name in points[0]}


def with_growth(points):
    """And what each one more than in the first point has added to the memory."""
    for point in points[1:]:
        for name in ("server_rss", "load_rss"):
            if f"{name}_bytes" in point:
                point[f"{name}_each_bytes"] = ((point[f"{name}_bytes"] - points[0][f"{name}_bytes"])
                                               / (point["n"] - points[0]["n"]))
    return points


def run(bench, kinds, counts, rounds, tell, fail):
    """{kind: [medians of each count, which grows]}; rounds are interleaved."""
    found = {}
    for number in range(rounds):
        for kind in kinds:
            for n in counts_of(kind, counts):
                tell(f"round {number + 1}: scaling, {n} {kind}")
                try:
                    point = measure(bench, kind, n)
                except Failed as failed:
                    fail(f"scaling, {n} {kind}: {failed}")
                    continue
                found.setdefault(kind, {}).setdefault(n, []).append(point)
    return {kind: with_growth([medians(by_count[n]) for n in sorted(by_count)])
            for kind, by_count in found.items()}
