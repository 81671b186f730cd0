"""What a second path brings where processors are the limit: 4 KiB random reads at depth 32 by the engine for fio, one
hop on this machine, from files in the page cache.

Two programs with a path each, on two processors, beside one program with one path. In each round one way after the
other, in random order; prints the medians, and the median of the rounds' ratios to one path.

    RNBD_BUILD=build-release /usr/bin/python3 tests/bench/two_paths.py [ROUNDS] [--secs SECONDS]
"""
import argparse
import os
import random
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../integration"))
from fio_engine import command, need_engine, report  # noqa: E402
from harness import Lab, export, skip  # noqa: E402

FILE_BYTES = 512 << 20


def ways(processors):
    """{name: (settings of the server, the programs)}; a program: (where it is held, or None; addresses; depth)."""
    both = ",".join(map(str, processors))
    two_workers = {"workers": 2, "cpus": both}
    here, there = ["127.0.0.1"], ["127.0.0.2"]
    return {
        "one path": ({}, [(None, here, 32)]),
        "one path, program and server on one processor":
            ({"cpus": str(processors[0])}, [(processors[0], here, 32)]),
        "two programs, each held on a processor": (two_workers, [(processors[0], here, 32), (processors[1], there, 32)]),
        "... the other way round": (two_workers, [(processors[1], here, 32), (processors[0], there, 32)]),
        "two programs, placed freely": (two_workers, [(None, here, 32), (None, there, 32)]),
        "one program with both paths": (two_workers, [(None, here + there, 64)]),
    }


def measure(files, settings, programs, seconds, environment):
    """IOPS of all programs together."""
    with Lab() as lab:
        server = lab.server(
            [export(f"vol{number}", path, session=f"host-{number}", io="buffered") for number, path in enumerate(files)],
            **settings)
        server.stop()
        server.config_with(lambda config: config["listen"].append({"tcp": f"127.0.0.2:{server.port}"}))
        server.start()
        running = []
        for number, (processor, hosts, depth) in enumerate(programs):
            words = command(server, f"vol{number}", "--rw=randread", "--bs=4k", f"--iodepth={depth}", "--norandommap",
                            "--time_based", f"--runtime={seconds * 1000:.0f}ms", "--ramp_time=0.2", session=f"host-{number}")
            words = [word for word in words if not word.startswith("--path=")]
            words.append("--path=" + ",".join(f"{host}:{server.port}" for host in hosts))
            if processor is not None:
                words.append(f"--cpus_allowed={processor}")
            running.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment))
        return sum(report(program.communicate()[0])["jobs"][0]["read"]["iops"] for program in running)


def main():
    parser = argparse.ArgumentParser(description="What a second path brings where processors are the limit.")
    parser.add_argument("rounds", nargs="?", metavar="ROUNDS", type=int, default=6, help="default 6")
    parser.add_argument("--secs", type=float, default=1, help="of each measurement; default 1")
    arguments = parser.parse_args()
    environment = need_engine()
    processors = sorted(os.sched_getaffinity(0))[:2]
    if len(processors) < 2:
        skip("this process has one processor only")
    found = {}
    with Lab() as lab:
        files = [lab.random_file(f"file{number}", FILE_BYTES) for number in range(2)]
        for _ in range(arguments.rounds):
            in_turn = list(ways(processors).items())
            random.shuffle(in_turn)
            for name, (settings, programs) in in_turn:
                found.setdefault(name, []).append(measure(files, settings, programs, arguments.secs, environment))
    for name in ways(processors):
        ratio = statistics.median(one / base for one, base in zip(found[name], found["one path"]))
        print(f"{name:46}  {statistics.median(found[name]) / 1000:5.0f} kIOPS  {ratio:.2f} x   "
              + " ".join(f"{one / 1000:.0f}" for one in found[name]))


main()
