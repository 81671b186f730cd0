"""Measures NBD servers that are on this machine and ours beside each other, and writes a report.

    RNBD_BUILD=build-release /usr/bin/python3 tests/bench/report OUT [--quick] [--scaling] ...

OUT is a folder that is made: report.md, report.txt, report.json, and plots, in the place of those of a
report before. Everything listens on loopback or Unix sockets; Ctrl-C ends all that was started.
--help lists the options.
"""

import signal

# Nothing is started yet: while imports take their time, Ctrl-C just ends it. See remember_signals().
signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import pages
import plots
import scaling
from figures import summarize
from measure import Job, differs, fio_start_s, run_cell
from processes import CPUS, Failed, Interrupted, check_interrupted, remember_signals, writing
from stands import ALL, Ours

HERE = os.path.dirname(os.path.abspath(__file__))
JOBS = os.path.join(HERE, "../jobs")
JOB_NAMES = sorted(name.removesuffix(".fio") for name in os.listdir(JOBS) if name.endswith(".fio"))
STAND_NAMES = [kind.name for kind in ALL]
CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"
CONGESTIONS = "/proc/sys/net/ipv4/tcp_available_congestion_control"
CELL_BESIDES_S = 0.5  # what a cell takes beside its load
POINT_BESIDES_S = 1.5
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
        self.fio_start_s = 0.0
        self.images = {}
        # Sockets are named in configurations, which take absolute paths.
        self.folder = tempfile.mkdtemp(prefix="rnbd-report-", dir=os.path.abspath(options.storage))
        try:
            self.memory = tempfile.mkdtemp(prefix=f"rnbd-report-{os.getpid()}-", dir="/dev/shm")
        except BaseException:
            shutil.rmtree(self.folder)
            raise

    def built(self, name):
        return os.path.join(self.build, name)

    def not_built(self, name):
        """Why there is none, or None."""
        said = "RNBD_BUILD" if "RNBD_BUILD" in os.environ else "RNBD_BUILD is not set"
        return None if os.path.exists(self.built(name)) else f"{name} is not in {self.build} ({said})"

    def image(self, storage, name):
        """A file full of noise in the page cache, on disk or in memory."""
        if (storage, name) not in self.images:
            path = os.path.join(self.folder if storage == "file" else self.memory, name)
            with writing(path) as file:
                for _ in range(self.size >> 20):
                    check_interrupted()
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


def some_of(names, none=False):
    """Of an option: those that a regular expression is found in; none: or the word none."""
    def parse(text):
        try:
            found = [name for name in names if re.search(text, name)]
        except re.error as wrong:
            raise argparse.ArgumentTypeError(f"found {text}, expected a regular expression: {wrong}")
        if none and text == "none":
            return []
        if not found:
            raise argparse.ArgumentTypeError(f"{text} matches none of {', '.join(names)}")
        return found
    return parse


def read_options():
    parser = argparse.ArgumentParser(
        prog="report", description=__doc__.split("\n\n")[0],
        epilog="Figures of two runs do not compare; ratios inside one do.")
    parser.add_argument("out", metavar="OUT", help="folder of the report, which is made")
    parser.add_argument("--seconds", type=number_above(float, 0.1),
                        help="of each cell (default 2); scaling takes whole ones, 1 or more")
    parser.add_argument("--rounds", type=number_above(int, 1), help="default 5")
    parser.add_argument("--quick", action="store_true", help="--rounds=2 --seconds=0.5, if they are not given")
    parser.add_argument("--size", type=number_above(int, 1), default=256, metavar="MIB", help="of each image (default 256)")
    parser.add_argument("--jobs", type=some_of(JOB_NAMES, none=True), default="", metavar="REGEX",
                        help="only these of tests/bench/jobs; none: no job, for --scaling alone")
    parser.add_argument("--stands", type=some_of(STAND_NAMES), default="", metavar="REGEX", help="only these: "
                        + ", ".join(STAND_NAMES))
    parser.add_argument("--baseline", default="nbdkit-tcp", choices=STAND_NAMES,
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
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.seconds = options.seconds or (0.5 if options.quick else 2)
    options.scaling = list(filter(None, options.scaling.split(",")))
    unknown = set(options.scaling) - set(scaling.KINDS)
    if unknown:
        parser.error(f"--scaling: {', '.join(sorted(unknown))}: expected some of {', '.join(scaling.KINDS)}")
    if not re.fullmatch(r"0*[1-9]\d*(,0*[1-9]\d*)*", options.counts):
        parser.error("--counts: expected numbers above 0 with commas between")
    options.counts = [int(count) for count in options.counts.split(",")]
    if not options.jobs and not options.scaling:
        parser.error("--jobs=none without --scaling is nothing")
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
    except FileNotFoundError:
        with open(CONGESTIONS) as file:
            sys.exit(f"report: --congestion: this kernel has no {options.congestion}; it has {file.read().strip()}, "
                     "and what its modules add")
    except PermissionError:  # in a namespace only those that anybody may use; a route may have any
        for network in ("127.0.0.0/8", "127.0.0.1/32"):
            subprocess.run(["ip", "route", "replace", "local", network, "dev", "lo", "table", "local",
                            "src", "127.0.0.1", "congctl", "lock", options.congestion], check=True)


def tell(text):
    check_interrupted()
    print(text, file=sys.stderr, flush=True)


def said(*words):
    """The first line that a program says, or None without it."""
    try:
        shown = subprocess.run(words, capture_output=True, text=True)
    except OSError:
        return None
    return (shown.stdout or shown.stderr).strip().split("\n")[0] if shown.returncode == 0 else None


def found_in(path, pattern):
    try:
        with open(path) as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        return None
    return found and found[1].strip()


def about(options, bench):
    with open(CONGESTION) as file:
        congestion = options.congestion or file.read().strip()
    versions = {"rnbd-server": said(bench.built("rnbd-server/rnbd-server"), "--version"),
                "fio": said("fio", "--version"), "nbdkit": said("nbdkit", "--version"),
                "qemu-nbd": said("qemu-nbd", "--version"),
                "qemu-storage-daemon": said("qemu-storage-daemon", "--version"),
                "nbd-server": said("nbd-server", "-V")}
    return {"command": shlex.join(sys.orig_argv), "date": datetime.datetime.now().astimezone().isoformat(" ", "seconds"),
            "cpu": found_in("/proc/cpuinfo", r"^model name\s*: (.*)") or os.uname().machine, "cpus": len(CPUS),
            "kernel": os.uname().release, "versions": {name: line for name, line in versions.items() if line},
            "build": bench.build, "build_type": found_in(bench.built("CMakeCache.txt"), r"^CMAKE_BUILD_TYPE:\w+=(.+)"),
            "source": said("git", "-C", HERE, "describe", "--always", "--dirty"),
            "congestion": congestion, "baseline": options.baseline, "size_bytes": options.size << 20,
            "rounds": options.rounds, "seconds": options.seconds, "scaling_seconds": scaling.seconds_of(options),
            "scaling_idle_seconds": scaling.quiet_seconds_of("idle-sessions", options),
            "fio_start_s": bench.fio_start_s, "load_before": os.getloadavg()}


def start_stands(bench, options, storages, running, report):
    """Fills running, {storage: stands}, which the caller stops; those that cannot run are named."""
    for kind in (kind for kind in ALL if kind.name in options.stands):
        missing = kind.missing(bench)
        if missing:
            report["missing"][kind.name] = missing
            tell(f"not measured: {kind.name}: {missing}")
            continue
        report["notes"][kind.name] = kind.note
        for storage in storages:
            tell(f"starts: {kind.name} ({storage})")
            stand = kind(bench, storage)
            running.setdefault(storage, []).append(stand)
            try:
                stand.start()
                report["servers"][f"{kind.name} ({storage})"] = stand.as_started()
            except Failed as failed:
                stand.stop()
                running[storage].remove(stand)
                fail(report, f"{kind.name} ({storage}): {failed}")


def plan(jobs, running):
    """[(job, placement, stands)] of a round."""
    return [(job, placement, [stand for stand in running.get(job.storage, []) if differs(stand, job, placement)])
            for job in jobs for placement in job.placements]


def tell_how_long(options, groups):
    cells = options.rounds * sum(len(stands) for _, _, stands in groups)
    points = options.rounds * sum(len(scaling.counts_of(kind, options.counts)) for kind in options.scaling)
    whole = scaling.seconds_of(options)
    took = cells * (options.seconds + CELL_BESIDES_S) + points * (2 * whole + POINT_BESIDES_S)
    parts = [f"{cells} cells of {options.seconds:g} s"] if cells else []
    parts += [f"{points} points of scaling, each {whole} s with a load and {whole} s without"] if points else []
    how_long = f"{took / 60:.0f} minutes" if took >= 120 else f"{took:.0f} s"
    tell(f"{' and '.join(parts) or 'nothing'}: about {how_long}")


def run_rounds(bench, options, groups, report):
    for number in range(options.rounds):
        for job, placement, stands in groups:
            # Another one is first in each round.
            turned = number % max(1, len(stands))
            for place, stand in enumerate(stands[turned:] + stands[:turned]):
                tell(f"round {number + 1}: {job.name}, {placement}: {stand.name}")
                try:
                    cell = run_cell(bench, stand, job, placement)
                except Failed as failed:
                    fail(report, f"{stand.name}, {job.name}, {placement}: {failed}")
                    continue
                report["cells"].append({"round": number, "place": place, "job": job.name,
                                        "placement": placement, "stand": stand.name} | cell)


def fail(report, text):
    tell(text)
    if text not in report["failures"]:  # of another round
        report["failures"].append(text)


def in_order(rows):
    return sorted(rows, key=lambda row: (row["job"], row["placement"], STAND_NAMES.index(row["stand"])))


def save(out, name, content):
    with writing(os.path.join(out, name)) as file:
        file.write(content.encode())


def remove_former(out):
    """The files of a report before, which may have had other plots."""
    names = ["report.json", "report.txt", "report.md", *plots.names(JOB_NAMES, ("one", "split", "free"), scaling.KINDS)]
    for name in names:
        if os.path.isfile(os.path.join(out, name)):
            os.unlink(os.path.join(out, name))


def write(out, report):
    """What cost most first: a full disk leaves that."""
    print(pages.text(report), end="", flush=True)
    remove_former(out)
    save(out, "report.json", json.dumps(report, indent=1) + "\n")
    save(out, "report.txt", pages.text(report))
    found = {} if plots.MISSING else plots.draw(out, report, STAND_NAMES)
    save(out, "report.md", pages.markdown(report, found))


def measure_jobs(bench, options, jobs, report):
    running = {}
    try:
        if jobs:
            bench.fio_start_s = report["about"]["fio_start_s"] = fio_start_s(bench)
            start_stands(bench, options, sorted({job.storage for job in jobs}), running, report)
        groups = plan(jobs, running)
        tell_how_long(options, groups)
        if any(stand.name == options.baseline for _, _, stands in groups for stand in stands):
            report["baseline"] = options.baseline
        run_rounds(bench, options, groups, report)
    finally:
        for stands in running.values():
            for stand in stands:
                stand.stop()
    report["rows"] = in_order(summarize(report["cells"], report["baseline"]))


def scaling_missing(bench):
    return bench.not_built("rnbd-server/rnbd-server") or bench.not_built("tests/bench/volume_load")


def nothing_of_ours(bench, options):
    """Why nothing of ours that was asked for can be measured; or None, also if nothing was."""
    kinds = [kind for kind in ALL if options.jobs and kind.name in options.stands and issubclass(kind, Ours)]
    whys = [kind.missing(bench) for kind in kinds] + ([scaling_missing(bench)] if options.scaling else [])
    return "; ".join(dict.fromkeys(whys)) if whys and all(whys) else None


def measure(bench, options, report):
    jobs = [Job(os.path.join(JOBS, f"{name}.fio")) for name in options.jobs]
    report["titles"] |= {job.name: job.title for job in jobs}
    why = nothing_of_ours(bench, options)
    if why:
        fail(report, f"nothing of rnbd is measured: {why}")
    measure_jobs(bench, options, jobs, report)
    missing = scaling_missing(bench)
    if options.scaling and missing:
        report["missing"]["scaling"] = missing
        tell(f"not measured: scaling: {missing}")
    elif options.scaling:
        report["titles"] |= {kind: scaling.KINDS[kind][0] for kind in options.scaling}
        report["scaling"] = scaling.run(bench, options.scaling, options.counts, options.rounds, tell,
                                        lambda text: fail(report, text))


def main():
    options = read_options()
    if not shutil.which("fio"):
        sys.exit("report: fio is not installed")
    try:
        enter_namespace(options)
        choose_congestion(options)
    except (OSError, subprocess.CalledProcessError) as wrong:
        sys.exit(f"report: --congestion {options.congestion}: {wrong}")
    remember_signals()
    bench = None
    try:
        os.makedirs(options.out, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.out):
            pass  # what cannot be written is not measured
        bench = Bench(options)
        report = {"about": about(options, bench), "baseline": "", "titles": {}, "notes": {}, "missing": {},
                  "failures": [], "rows": [], "scaling": {}, "servers": {}, "cells": []}
        if plots.MISSING:
            report["missing"]["plots"] = plots.MISSING
            tell(f"no plots: {plots.MISSING}")
        measure(bench, options, report)
        write(options.out, report)
    except Interrupted:
        sys.exit("report: interrupted; everything that was started has ended")
    except (OSError, Failed) as wrong:  # a full disk, a folder that is none, a fio that does not run
        sys.exit(f"report: {wrong}")
    finally:
        if bench:
            bench.close()
    sys.exit(1 if report["failures"] else 0)


main()
