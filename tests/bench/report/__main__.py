"""Measures NBD servers that are on this machine and ours beside each other, and writes a report.

    RNBD_BUILD=build-release python3 tests/bench/report OUT [--quick] [--scaling] ...

OUT is a folder that is made: report.md, report.txt, report.json, and plots. Everything listens on
loopback or Unix sockets; Ctrl-C ends all that was started. --help lists the options.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import pages
import plots
import scaling
from figures import summarize
from measure import Job, run_cell
from processes import CPUS, Failed
from stands import ALL

HERE = os.path.dirname(os.path.abspath(__file__))
JOBS = os.path.join(HERE, "../jobs")
CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"
# Debian's python3 and tools before other installations of the same names.
os.environ["PATH"] = "/usr/bin:/usr/sbin:/bin:/sbin:" + os.environ.get("PATH", "")


class Bench:
    """What all cells share: folders, images, sizes."""

    def __init__(self, options):
        self.build = os.path.abspath(os.environ.get("RNBD_BUILD", os.path.join(HERE, "../../../build")))
        self.seconds, self.size = options.seconds, options.size << 20
        self.one_cpu = not options.free
        shown = subprocess.run(["fio", "--enghelp"], capture_output=True, text=True)
        self.fio_has_nbd = "nbd" in shown.stdout.split()
        self.images = {}
        # Sockets are named in configurations, which take absolute paths.
        self.folder = tempfile.mkdtemp(prefix="rnbd-report-", dir=os.path.abspath(options.storage))
        try:
            self.memory = tempfile.mkdtemp(prefix="rnbd-report-", dir="/dev/shm")
        except BaseException:
            shutil.rmtree(self.folder)
            raise

    def built(self, name):
        return os.path.join(self.build, name)

    def not_built(self, name):
        return None if os.path.exists(self.built(name)) else f"{name} was not built in RNBD_BUILD"

    def image(self, storage, name):
        """A file full of noise in the page cache, on disk or in memory."""
        if (storage, name) not in self.images:
            path = os.path.join(self.folder if storage == "file" else self.memory, name)
            with open(path, "wb") as file:
                for _ in range(self.size >> 20):
                    file.write(os.urandom(1 << 20))
                file.flush()
                os.fsync(file.fileno())
            self.images[storage, name] = path
        return self.images[storage, name]

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)


def number_above(kind, least):
    """Of an option: a number of this kind, least or more."""
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"found {text}, expected a number of {least} or more")
        return value
    return parse


def pattern(text):
    try:
        return re.compile(text)
    except re.error as wrong:
        raise argparse.ArgumentTypeError(f"found {text}, expected a regular expression: {wrong}")


def read_options():
    parser = argparse.ArgumentParser(
        prog="report", description=__doc__.split("\n\n")[0],
        epilog="Figures of two runs do not compare; ratios inside one do.")
    parser.add_argument("out", metavar="OUT", help="folder of the report, which is made")
    parser.add_argument("--seconds", type=number_above(float, 0.1), default=2, help="of each cell (default 2)")
    parser.add_argument("--rounds", type=number_above(int, 1), default=5, help="default 5")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 0.5 s")
    parser.add_argument("--size", type=number_above(int, 1), default=256, metavar="MIB", help="of each image (default 256)")
    parser.add_argument("--jobs", type=pattern, default="", metavar="REGEX", help="only these of tests/bench/jobs")
    parser.add_argument("--stands", type=pattern, default="", metavar="REGEX", help="only these: "
                        + ", ".join(one.name for one in ALL))
    parser.add_argument("--baseline", default="nbdkit-tcp", choices=[one.name for one in ALL],
                        metavar="STAND", help="the stand of the ratios (default nbdkit-tcp)")
    parser.add_argument("--scaling", nargs="?", const=",".join(scaling.KINDS), default="", metavar="KINDS",
                        help="also, or with --jobs=none only: " + ", ".join(scaling.KINDS))
    parser.add_argument("--counts", default="1,10,100,1000", help="of the scaling (default 1,10,100,1000)")
    parser.add_argument("--free", action="store_true", help="scaling: on all CPUs instead of one")
    parser.add_argument("--storage", default=tempfile.gettempdir(), metavar="FOLDER",
                        help="where images on disk are (default TMPDIR)")
    parser.add_argument("--congestion", metavar="NAME", help="TCP's congestion control, in a network "
                        "namespace of the run's own (root): some, as bbr, pace loopback")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds = 0.5, 2
    unknown = set(filter(None, options.scaling.split(","))) - set(scaling.KINDS)
    if unknown:
        parser.error(f"--scaling: {', '.join(sorted(unknown))}: expected some of {', '.join(scaling.KINDS)}")
    if not re.fullmatch(r"0*[1-9]\d*(,0*[1-9]\d*)*", options.counts):
        parser.error("--counts: expected numbers above 0 with commas between")
    return options


def enter_namespace(options):
    """Starts this program again in a network namespace whose congestion control may be chosen."""
    if not options.congestion or os.environ.get("RNBD_REPORT_NAMESPACE"):
        return
    if os.geteuid() != 0:
        sys.exit("report: --congestion needs root")
    os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv],
               dict(os.environ, RNBD_REPORT_NAMESPACE="1"))


def choose_congestion(options):
    if not options.congestion:
        return
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    try:
        with open(CONGESTION, "w") as file:
            file.write(options.congestion)
    except PermissionError:  # in a namespace only those that anybody may use; a route may have any
        for network in ("127.0.0.0/8", "127.0.0.1/32"):
            subprocess.run(["ip", "route", "replace", "local", network, "dev", "lo", "table", "local",
                            "src", "127.0.0.1", "congctl", "lock", options.congestion], check=True)


def tell(text):
    """Before each step, so that is where an end is noticed whose exception got lost."""
    if ENDING:
        raise KeyboardInterrupt
    print(text, file=sys.stderr, flush=True)


def about(options):
    with open(CONGESTION) as file:
        congestion = options.congestion or file.read().strip()
    fio = subprocess.run(["fio", "--version"], capture_output=True, text=True).stdout.strip()
    return {"cpus": len(CPUS), "kernel": os.uname().release, "fio": fio, "congestion": congestion,
            "size_bytes": options.size << 20, "rounds": options.rounds, "seconds": options.seconds,
            "load_before": os.getloadavg()}


def start_stands(bench, options, storages, report):
    """{storage: [stands that run]}; those that cannot are named."""
    running = {storage: [] for storage in storages}
    for kind in ALL:
        if not options.stands.search(kind.name):
            continue
        missing = kind.missing(bench)
        if missing:
            report["missing"][kind.name] = missing
            tell(f"not measured: {kind.name}: {missing}")
            continue
        report["notes"][kind.name] = kind.note
        for storage in storages:
            stand = kind(bench, storage)
            try:
                running[storage].append(stand)
                stand.start()
            except Failed as failed:
                stand.stop()
                running[storage].remove(stand)
                report["missing"][f"{kind.name} ({storage})"] = str(failed)
                tell(f"not measured: {kind.name}: {failed}")
    return running


def run_rounds(bench, options, jobs, running, report):
    for number in range(options.rounds):
        for job in jobs:
            for placement in job.placements:
                # Another one is first in each round.
                stands = running[job.storage]
                turned = number % max(1, len(stands))
                for stand in stands[turned:] + stands[:turned]:
                    tell(f"round {number + 1}: {job.name}, {placement}: {stand.name}")
                    try:
                        cell = run_cell(bench, stand, job, placement)
                    except Failed as failed:
                        fail(report, f"{stand.name}, {job.name}, {placement}: {failed}")
                        continue
                    report["cells"].append({"round": number, "job": job.name, "placement": placement,
                                            "stand": stand.name} | cell)


def fail(report, text):
    tell(text)
    if text not in report["failures"]:  # of another round
        report["failures"].append(text)


def in_order(rows):
    order = [kind.name for kind in ALL]
    return sorted(rows, key=lambda row: (row["job"], row["placement"], order.index(row["stand"])))


def write(out, report):
    found = {}
    if plots.MISSING:
        fail(report, f"no plots: {plots.MISSING}")
    else:
        found = plots.draw(out, report, lambda job, placement:
                           f"{report['titles'][job]} ({placement} placement)")
    for name, content in (("report.json", json.dumps(report, indent=1) + "\n"),
                          ("report.md", pages.markdown(report, found)),
                          ("report.txt", pages.text(report))):
        with open(os.path.join(out, name), "w") as file:
            file.write(content)
    print(pages.text(report), end="")


def measure(bench, options, report):
    jobs = [Job(os.path.join(JOBS, name)) for name in sorted(os.listdir(JOBS))
            if name.endswith(".fio") and options.jobs.search(name.removesuffix(".fio"))]
    report["titles"] |= {job.name: job.title for job in jobs}
    running = {}
    try:
        if jobs:
            running = start_stands(bench, options, sorted({job.storage for job in jobs}), report)
        names = {stand.name for stands in running.values() for stand in stands}
        report["baseline"] = options.baseline if options.baseline in names else ""
        run_rounds(bench, options, jobs, running, report)
    finally:
        for stands in running.values():
            for stand in stands:
                stand.stop()
    report["rows"] = in_order(summarize(report["cells"], report["baseline"]))
    kinds = list(filter(None, options.scaling.split(",")))
    missing = bench.not_built("tests/bench/volume_load") or bench.not_built("rnbd-server/rnbd-server")
    if kinds and missing:
        report["missing"]["scaling"] = missing
    elif kinds:
        report["titles"] |= {kind: scaling.KINDS[kind][0] for kind in kinds}
        report["scaling"] = scaling.run(bench, kinds, [int(n) for n in options.counts.split(",")],
                                        options.rounds, tell, lambda text: fail(report, text))


ENDING = []  # the signal that told us to end


def interrupted(number, _):
    # An exception is swallowed where Python happens to run a finalizer.
    if not ENDING:
        ENDING.append(number)
        raise KeyboardInterrupt


def main():
    options = read_options()
    if not shutil.which("fio"):
        sys.exit("report: fio is not installed")
    enter_namespace(options)
    choose_congestion(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    report = {"about": about(options), "baseline": "", "titles": {}, "notes": {}, "missing": {},
              "failures": [], "rows": [], "scaling": {}, "cells": []}
    bench = None
    try:
        os.makedirs(options.out, exist_ok=True)
        bench = Bench(options)
        measure(bench, options, report)
        write(options.out, report)
    except KeyboardInterrupt:
        sys.exit("report: interrupted; everything that was started has ended")
    except OSError as wrong:  # a full disk, a folder that is none
        sys.exit(f"report: {wrong}")
    finally:
        if bench:
            bench.close()
    sys.exit(1 if any("no plots" not in text for text in report["failures"]) else 0)


main()
