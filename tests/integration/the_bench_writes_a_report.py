"""tests/bench/report measures what it finds, names what it does not find, and leaves nothing behind."""

import contextlib
import glob
import importlib
import json
import os
import re
import signal
import subprocess
import sys

from harness import BUILD, Daemon, Lab, built_with, check, free_port, need, run, small_tmpfs, wait_until

REPORT = os.path.join(os.path.dirname(__file__), "../bench/report")
FIGURES = ("iops", "bytes_per_s", "p50_us", "p99_us", "p999_us", "fio_us", "cpu_us")

need("fio", "nbdkit")
LITTLE = ["--seconds=0.2", "--rounds=2", "--size=16", "--jobs=read-4k-depth-1$|write-4k"]


def left(mark):
    """Words of the processes that were started by a run with this in its environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as variables, open(f"/proc/{name}/cmdline", "rb") as words:
                if f"RNBD_MARK={mark}".encode() in variables.read().split(b"\0"):
                    found.append(words.read().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


with Lab() as lab:
    def words(out, *more):
        storage = lab.path(out + "-storage")
        os.mkdir(storage)
        return ["python3", REPORT, lab.path(out), f"--storage={storage}", *LITTLE, *more]

    environment = dict(os.environ, RNBD_BUILD=os.path.abspath(BUILD))
    # A plain fio cannot load a sanitized engine; figures of such a build mean nothing anyway.
    sanitized = bool(built_with("RNBD_SANITIZE"))
    if sanitized:
        print("NOT CHECKED: rnbd-one-hop, since the engine is sanitized and fio is not")
    ours = "rnbd-two-hops" if sanitized else "rnbd"
    result = run(*words("all", f"--stands=nbdkit-tcp|{ours}|local", "--scaling=volumes,idle-sessions,depth",
                        "--counts=1,3"), env=environment)
    with open(lab.path("all/report.json")) as file:
        report = json.load(file)
    check(not report["failures"], f"nothing failed: {report['failures']}")
    engine = not sanitized and os.path.exists(os.path.join(BUILD, "fio-engine/fio-rnbd.so"))
    stands = {"nbdkit-tcp", "rnbd-two-hops", "local"} | ({"rnbd-one-hop"} if engine else set())
    check(engine or sanitized or "rnbd-one-hop" in report["missing"], "what was not built is named")
    if "nbdkit-tcp" in report["missing"]:
        stands -= {"nbdkit-tcp", "rnbd-two-hops"}  # this fio knows no NBD
    measured = {(row["job"], row["placement"], row["stand"]) for row in report["rows"]}
    alone = {(job, placement, stand) for stand in stands
             for job, placements in (("random-read-4k-depth-1", ("one", "split")),
                                     ("random-write-4k-depth-32", ("one", "free")))
             for placement in (placements if len(os.sched_getaffinity(0)) > 1 else placements[:1])}
    check(measured == alone - {("random-read-4k-depth-1", "split", "local")}, f"a row for each: {measured}")
    for row in report["rows"]:
        check(row["rounds"] == 2, f"both rounds count: {row}")
        check(all(row[name]["median"] > 0 for name in FIGURES), f"figures are there: {row}")
        check(row["iops"]["spread"] > 0, f"rounds differ: {row}")
        check(row["client_us"]["median"] >= 0 and row["iops"]["min"] <= row["iops"]["max"], row)
        if report["baseline"] == row["stand"]:
            check(row["iops_ratio"]["median"] == 1, f"the baseline is its own: {row}")
    for cell in report["cells"]:
        check(cell["requests"] > 0 and cell["wall_s"] > 0.2 and cell["cpu_s"]["fio"] > 0, cell)
        check(cell["started"] and 0 <= cell["place"] < len(stands), cell)
    for name in ("command", "date", "cpu", "kernel", "build_type", "source"):
        check(name in report["about"], f"{name}: {report['about']}")
    check({"rnbd-server", "fio", "nbdkit"} <= set(report["about"]["versions"]), report["about"])
    if "nbdkit-tcp" in stands:
        check(report["servers"]["nbdkit-tcp (file)"]["commands"][0].startswith("nbdkit -f"), report["servers"])
    for kind in ("volumes", "idle-sessions", "depth"):
        points = report["scaling"][kind]
        check([point["n"] for point in points] == [1, 3], f"{kind}: {points}")
        check(all(point["iops"] > 0 for point in points), points)
        check(all(("server_rss_bytes" in point) == (kind != "depth") for point in points), points)
        check(("load_rss_each_bytes" in points[1]) == (kind != "depth"), points)
    with open(lab.path("all/report.md")) as file:
        page = file.read()
    check("| rnbd-two-hops |" in page or "rnbd-two-hops" in report["missing"], page)
    drawn = re.findall(r"\]\((.*?\.svg)\)", page)
    if "plots" in report["missing"]:
        print("NOT CHECKED: plots, since python3-matplotlib is not installed")
    else:
        check(len(drawn) == len({one[:2] for one in measured}) + 3, f"a plot for each table: {drawn}")
        for name in drawn:
            for one in (name, name.replace(".svg", ".png")):
                check(os.path.getsize(lab.path(f"all/{one}")) > 1000, f"{one} is drawn")
    check("IOPS ratio" in result.stdout, "the table is printed")
    check(os.listdir(lab.path("all-storage")) == [], "images are gone")
    check("There are no ratios" in page or report["baseline"], page)

    # As many reads are under way as the row says, up to the most that is counted.
    sys.path.insert(0, REPORT)
    scaling = importlib.import_module("scaling")
    (n,) = scaling.counts_of("depth", [1 << 20])
    check(n >= 1000, f"the default counts: {n}")
    config = scaling.config_of({"depth": n}, free_port(), "")
    (volume,) = config["exports"]
    volume["storage"] = {"kind": "delay", "gate": lab.path("gate"), "gate_operations": "read", "of": volume["storage"]}
    with open(lab.path("gate"), "w"):
        server = Daemon(lab, "rnbd-server", "deep", config)
    lab.daemons.append(server)
    server.start()
    load = subprocess.Popen([os.path.join(BUILD, "tests/bench/volume_load"), "--path", config["listen"][0]["tcp"],
                             "--depth", str(n), "--seconds", "0"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    lab.cleanups.append(load.kill)
    load.stdin.write(b"\n\n\n")
    load.stdin.flush()
    wait_until(f"{n} are under way", lambda: any(one["in_flight"] == n for one in server.status()["sessions"]))
    os.unlink(lab.path("gate"))
    check(load.wait(timeout=60) == 0, "the load ends")

    # Nothing of ours: its folder is named, and what was asked for was not done.
    os.mkdir(lab.path("empty"))
    absent = run(*words("absent", "--stands=nbdkit-tcp|rnbd", "--scaling=depth"), ok=False,
                 env=dict(environment, RNBD_BUILD=lab.path("empty")))
    check(absent.returncode == 1 and lab.path("empty") in absent.stderr, f"it says where: {absent}")
    with open(lab.path("absent/report.json")) as file:
        missing = json.load(file)["missing"]
    check({"rnbd-one-hop", "rnbd-two-hops", "scaling"} <= set(missing), f"absent ones are named: {missing}")

    # Nor if all that is asked for is a part that was not built.
    os.makedirs(lab.path("part/rnbd-server"))
    os.symlink(os.path.abspath(os.path.join(BUILD, "rnbd-server/rnbd-server")), lab.path("part/rnbd-server/rnbd-server"))
    for number, (asked, part) in enumerate(((["--stands=one-hop"], "fio-engine/fio-rnbd.so"),
                                            (["--jobs=none", "--scaling=depth"], "tests/bench/volume_load"))):
        absent = run(*words(f"part-{number}", *asked), ok=False, env=dict(environment, RNBD_BUILD=lab.path("part")))
        check(absent.returncode == 1, f"{part}: {absent}")
        check(f"nothing of rnbd is measured: {part} is not in {lab.path('part')}" in absent.stderr, f"{absent}")

    # In the folder of a report before, whose plots go, as nothing else does.
    with open(lab.path("absent/notes.png"), "w"), open(lab.path("absent/scaling-volumes.svg"), "w"):
        pass
    other = run(*words("again", "--stands=local", "--baseline=local"), env=dict(environment, RNBD_BUILD=lab.path("empty")))
    check("1.00" in other.stdout, f"it is its own baseline: {other}")
    other = run("python3", REPORT, lab.path("absent"), f"--storage={lab.folder}", *LITTLE, "--stands=local",
                env=dict(environment, RNBD_BUILD=lab.path("empty")))
    check("There are no ratios: nbdkit-tcp was not measured" in other.stdout and "IOPS ratio" not in other.stdout, other)
    here = os.listdir(lab.path("absent"))
    check("notes.png" in here and "scaling-volumes.svg" not in here, f"old plots are gone: {here}")

    # A folder may be named from where it is run.
    run(*words("relative", "--jobs=none", "--scaling=depth", "--counts=1", "--rounds=1", "--storage=relative-storage"),
        env=environment, cwd=lab.folder)
    with open(lab.path("relative/report.json")) as file:
        scaled = json.load(file)["scaling"]
    check([point["n"] for point in scaled["depth"]] == [1], f"it was measured: {scaled}")

    # Told to end, it ends what it has started: while that starts, too.
    def interrupted_at(line, count, number):
        out = f"ended-{number}-{count}-{line.split()[0]}"
        with open(lab.path(f"{out}.log"), "w") as log:
            process = subprocess.Popen(words(out, "--rounds=1000"), env=dict(environment, RNBD_MARK=lab.path(out)),
                                       stderr=log, stdout=log, start_new_session=True)
        lab.cleanups.append(process.kill)

        def has_come_to_it():
            with open(lab.path(f"{out}.log")) as text:
                return text.read().count(line) >= count

        wait_until("it is there", has_come_to_it)
        process.send_signal(number)
        check(process.wait(timeout=120) != 0, "an interrupted run is none")
        check(left(lab.path(out)) == [], f"all has ended: {left(lab.path(out))}")
        check(os.listdir(lab.path(f"{out}-storage")) == [], "images are gone")
        check(glob.glob(f"/dev/shm/rnbd-report-{process.pid}-*") == [], "those in memory, too")

    for number in (signal.SIGINT, signal.SIGTERM):
        interrupted_at("round 1: ", 1, number)
    # The fifth kind of server is nbd-server, which goes into the background.
    for count in (1, 4, 9, 10, 16):
        interrupted_at("starts: ", count, signal.SIGTERM if count % 2 else signal.SIGINT)

    # While it is still being read, too, without a word.
    os.makedirs(lab.path("slow/matplotlib"))
    with open(lab.path("slow/matplotlib/__init__.py"), "w") as slow:
        slow.write(f"import time\nopen({lab.path('slow/begun')!r}, 'w').close()\ntime.sleep(600)\n")
    process = subprocess.Popen(words("unread"), env=dict(environment, PYTHONPATH=lab.path("slow")),
                               stderr=subprocess.PIPE, text=True)
    lab.cleanups.append(process.kill)
    wait_until("it imports", lambda: os.path.exists(lab.path("slow/begun")))
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    check(process.returncode == -signal.SIGINT and said == "", f"{process.returncode}: {said}")

    for number, (word, said) in enumerate((
            ("--rounds=0", "expected a number of 1 or more"), ("--seconds=x", "expected a number of 0.1 or more"),
            ("--size=0", "expected a number of 1 or more"), ("--jobs=[", "expected a regular expression"),
            ("--stands=*", "expected a regular expression"), ("--baseline=nobody", "invalid choice: 'nobody'"),
            ("--counts=1,0", "expected numbers above 0"), ("--storage=/nowhere", "/nowhere"),
            ("--jobs=tape", "matches none of random-read-4k-depth-1"), ("--jobs=none", "is nothing"),
            ("--stands=ftp", "matches none of nbdkit-tcp"))):
        wrong = run(*words(f"wrong-{number}", word), ok=False)
        check(wrong.returncode != 0 and said in wrong.stderr, f"{word}: {wrong}")
        check("Traceback" not in wrong.stderr, f"{word}: {wrong.stderr}")

    wrong = run(*words("wrong", "--scaling=planets"), ok=False)
    check(wrong.returncode == 2 and "expected some of" in wrong.stderr, wrong.stderr)

    for script, word in (("recovery.py", "abc"), ("failover.py", "stals")):
        wrong = run("python3", os.path.join(REPORT, "..", script), word, ok=False)
        check(wrong.returncode == 2 and "usage: " in wrong.stderr and "Traceback" not in wrong.stderr, wrong)

    # Found out before it measures.
    with open(lab.path("no-folder"), "w"):
        pass
    wrong = run("python3", REPORT, lab.path("no-folder"), ok=False)
    check(wrong.returncode == 1 and "File exists" in wrong.stderr and "starts" not in wrong.stderr, wrong)

    # A file system that fills up.
    if os.geteuid() == 0:
        wrong = run(*words("no-congestion", "--congestion=nosuch"), ok=False)
        check(wrong.returncode == 1 and "nosuch" in wrong.stderr and "Traceback" not in wrong.stderr, wrong)
        with small_tmpfs(lab, "full", "20m"):  # not enough for the images of both servers of ours
            mark = lab.path("out-of-space")
            wrong = run(*words("out-of-space", f"--storage={lab.path('full')}", "--jobs=read-4k-depth-1$"), ok=False,
                        env=dict(environment, RNBD_MARK=mark))
            check(left(mark) == [], f"all has ended: {left(mark)}")
            check(wrong.returncode == 1 and "No space left on device" in wrong.stderr, f"it says so: {wrong}")
            check("Traceback" not in wrong.stderr, wrong.stderr)
            check(os.listdir(lab.path("full")) == [], "images are gone")
            # Full before it begins.
            with open(lab.path("full/filling"), "wb", buffering=0) as filling, contextlib.suppress(OSError):
                while True:
                    filling.write(bytes(1 << 20))
            wrong = run(*words("full-before", f"--storage={lab.path('full')}", "--stands=local"), ok=False)
            said = wrong.stderr.splitlines()[-1]
            check(wrong.returncode == 1 and "Traceback" not in wrong.stderr, wrong.stderr)
            check(said.startswith("report: ") and "No space left on device" in said and lab.path("full/") in said, said)
    else:
        print("NOT CHECKED: a full disk and congestion control, which need root")
