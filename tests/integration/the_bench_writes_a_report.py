"""tests/bench/report measures what it finds, names what it does not find, and leaves nothing behind."""

import json
import os
import re
import signal
import subprocess

from fio_engine import sanitizer
from harness import BUILD, Lab, check, need, run, small_tmpfs, wait_until

REPORT = os.path.join(os.path.dirname(__file__), "../bench/report")
FIGURES = ("iops", "bytes_per_s", "p50_us", "p99_us", "p999_us", "fio_us", "cpu_us")

need("fio", "nbdkit")
LITTLE = ["--seconds=0.2", "--rounds=2", "--size=16", "--jobs=read-4k-depth-1$|write-4k"]


def left(folder):
    """Processes that were started for a run in this folder: their images are named in their words."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as words:
                text = words.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in text and name != str(os.getpid()):
            found.append(text)
    return found


with Lab() as lab:
    def words(out, *more):
        storage = lab.path(out + "-storage")
        os.mkdir(storage)
        return ["python3", REPORT, lab.path(out), f"--storage={storage}", *LITTLE, *more]

    environment = dict(os.environ, RNBD_BUILD=os.path.abspath(BUILD))
    # A plain fio cannot load a sanitized engine; figures of such a build mean nothing anyway.
    if sanitizer():
        print("NOT CHECKED: rnbd-one-hop, since the engine is sanitized and fio is not")
    ours = "rnbd-two-hops" if sanitizer() else "rnbd"
    result = run(*words("all", f"--stands=nbdkit-tcp|{ours}|local", "--scaling=volumes,idle-sessions,depth",
                        "--counts=1,3"), env=environment)
    with open(lab.path("all/report.json")) as file:
        report = json.load(file)
    check(not report["failures"] or all("no plots" in text for text in report["failures"]),
          f"nothing failed: {report['failures']}")
    engine = not sanitizer() and os.path.exists(os.path.join(BUILD, "fio-engine/fio-rnbd.so"))
    stands = {"nbdkit-tcp", "rnbd-two-hops", "local"} | ({"rnbd-one-hop"} if engine else set())
    check(engine or sanitizer() or "rnbd-one-hop" in report["missing"], "what was not built is named")
    if "nbdkit-tcp" in report["missing"]:
        stands -= {"nbdkit-tcp", "rnbd-two-hops"}  # this fio knows no NBD
    check(len(report["rows"]) == 4 * len(stands), f"a row for each: {report['rows']}")
    for row in report["rows"]:
        check(row["rounds"] == 2, f"both rounds count: {row}")
        check(all(row[name]["median"] > 0 for name in FIGURES), f"figures are there: {row}")
        check(row["client_us"]["median"] >= 0 and row["iops"]["min"] <= row["iops"]["max"], row)
        if report["baseline"] == row["stand"]:
            check(row["iops_ratio"]["median"] == 1, f"the baseline is its own: {row}")
    for kind in ("volumes", "idle-sessions", "depth"):
        points = report["scaling"][kind]
        check([point["n"] for point in points] == [1, 3], f"{kind}: {points}")
        check(all(point["iops"] > 0 and point["server_bytes"] > 0 for point in points), points)
    with open(lab.path("all/report.md")) as file:
        page = file.read()
    check("| rnbd-two-hops |" in page or "rnbd-two-hops" in report["missing"], page)
    drawn = re.findall(r"\]\((.*?\.svg)\)", page)
    if report["failures"]:
        print("NOT CHECKED: plots, since python3-matplotlib is not installed")
    else:
        check(len(drawn) == 7, f"a plot for each table: {drawn}")
        for name in drawn:
            for one in (name, name.replace(".svg", ".png")):
                check(os.path.getsize(lab.path(f"all/{one}")) > 1000, f"{one} is drawn")
    check("IOPS ratio" in result.stdout, "the table is printed")
    check(os.listdir(lab.path("all-storage")) == [], "images are gone")

    # Nothing of ours: it is named.
    os.mkdir(lab.path("empty"))
    run(*words("absent", "--stands=nbdkit-tcp|rnbd", "--scaling=depth"),
        env=dict(environment, RNBD_BUILD=lab.path("empty")))
    with open(lab.path("absent/report.json")) as file:
        missing = json.load(file)["missing"]
    check({"rnbd-one-hop", "rnbd-two-hops", "scaling"} <= set(missing), f"absent ones are named: {missing}")

    # A folder may be named from where it is run.
    run(*words("relative", "--jobs=^$", "--scaling=depth", "--counts=1", "--rounds=1", "--storage=relative-storage"),
        env=environment, cwd=lab.folder)
    with open(lab.path("relative/report.json")) as file:
        scaled = json.load(file)["scaling"]
    check([point["n"] for point in scaled["depth"]] == [1], f"it was measured: {scaled}")

    # Told to end, it ends what it has started.
    for number in (signal.SIGINT, signal.SIGTERM):
        out = f"ended-{number}"
        with open(lab.path(f"{out}.log"), "w") as log:
            process = subprocess.Popen(words(out, "--rounds=1000"), env=environment, stderr=log,
                                       stdout=log, start_new_session=True)
        lab.cleanups.append(process.kill)

        def measures():
            with open(lab.path(f"{out}.log")) as text:
                return "round 1: " in text.read()

        wait_until("it measures", measures)
        process.send_signal(number)
        check(process.wait(timeout=120) != 0, "an interrupted run is none")
        check(os.listdir(lab.path(f"{out}-storage")) == [], "images are gone")
        check(left(lab.path(f"{out}-storage")) == [], f"all has ended: {left(lab.path(out))}")

    for number, (word, said) in enumerate((
            ("--rounds=0", "expected a number of 1 or more"), ("--seconds=x", "expected a number of 0.1 or more"),
            ("--size=0", "expected a number of 1 or more"), ("--jobs=[", "expected a regular expression"),
            ("--stands=*", "expected a regular expression"), ("--baseline=nobody", "invalid choice: 'nobody'"),
            ("--counts=1,0", "expected numbers above 0"), ("--storage=/nowhere", "/nowhere"))):
        wrong = run(*words(f"wrong-{number}", word), ok=False)
        check(wrong.returncode != 0 and said in wrong.stderr, f"{word}: {wrong}")
        check("Traceback" not in wrong.stderr, f"{word}: {wrong.stderr}")

    wrong = run(*words("wrong", "--scaling=planets"), ok=False)
    check(wrong.returncode == 2 and "expected some of" in wrong.stderr, wrong.stderr)

    # A file system that fills up.
    if os.geteuid() == 0:
        with small_tmpfs(lab, "full", "4m"):
            wrong = run(*words("out-of-space", f"--storage={lab.path('full')}", "--jobs=read-4k-depth-1$"), ok=False)
            check(wrong.returncode == 1 and "No space left on device" in wrong.stderr, f"it says so: {wrong}")
            check("Traceback" not in wrong.stderr, wrong.stderr)
            check(os.listdir(lab.path("full")) == [], "images are gone")
    else:
        print("NOT CHECKED: a full disk, which needs root")
