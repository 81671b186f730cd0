"""One cell of the report: a stand under a job for a while, and what it cost whom."""

import datetime
import json
import os
import subprocess
import time

from processes import CPUS, Failed, check_interrupted, end, machine_s

ROLES = ("server", "client")
PERCENTILES = {"p50_us": "50.000000", "p99_us": "99.000000", "p999_us": "99.900000"}
FIO = ["fio", "--output-format=json", "--eta=never"]


class Job:
    """A job file of tests/bench/jobs; its first lines say what it is for."""

    def __init__(self, path):
        self.path = path
        self.name = os.path.basename(path).removesuffix(".fio")
        with open(path) as file:
            lines = file.read().splitlines()
        self.title = lines[0].lstrip("; ")
        said = dict(line.lstrip("; ").split(": ", 1) for line in lines[1:] if ": " in line)
        self.placements = said["placement"].split()
        self.storage = said["storage"]


def cpus_of(placement):
    """{process: its CPUs}.

    one: all on the first; split: what is nearest to the storage on the last, the rest on the first.
    """
    everywhere, first, last = set(CPUS), {CPUS[0]}, {CPUS[-1]}
    fio, client, server = {"free": (everywhere, everywhere, everywhere),
                           "one": (first, first, first), "split": (first, first, last)}[placement]
    return {"fio": fio, "client": client, "server": server}


def differs(stand, job, placement):
    """Not if the job has measured the same under another name: on one CPU, or without a server."""
    def of(one):
        cpus = cpus_of(one)
        return cpus if stand.hops else cpus["fio"]
    before = job.placements[:job.placements.index(placement)]
    return all(of(other) != of(placement) for other in before)


def run_fio(bench, words, cpus):
    """(fio's report, CPU seconds of the process and all of its jobs, threads of io_uring included)."""
    words = ["taskset", "--cpu-list", ",".join(map(str, sorted(cpus))), *words]
    deadline = time.monotonic() + bench.seconds + 120
    # A disk that is full of images would take nothing of it, and fio does not say so.
    with open(os.memfd_create("fio.out"), "w+b") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   cwd=bench.folder, start_new_session=True)
        try:
            ended = 0
            while ended == 0:
                check_interrupted()
                time.sleep(0.005)
                ended, status, used = os.wait4(process.pid, os.WNOHANG)
                if time.monotonic() > deadline:
                    process.kill()
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            end(process.pid, process)
        out.seek(0)
        text = out.read().decode(errors="replace")
    if process.returncode != 0 or "{\n" not in text:
        raise Failed(f"fio ends with {process.returncode}: {text.strip().split(chr(10))[0] or 'it says nothing'}")
    return json.loads(text[text.index("{\n"):]), used.ru_utime + used.ru_stime


def fio_start_s(bench):
    """CPU seconds of a fio that does nothing: it reads its options and looks at the clock."""
    words = [*FIO, "--name=start", "--ioengine=null", "--size=4k"]
    try:
        return min(run_fio(bench, words, CPUS[:1])[1] for _ in range(3))
    except Failed as failed:
        raise Failed(f"{' '.join(words)}: {failed}")


def percentile(jobs, key):
    """Of both ways; a mixed load is weighted by its requests."""
    total = count = 0
    for job in jobs:
        for way in ("read", "write"):
            requests = job[way]["total_ios"]
            if requests:
                total += job[way]["lat_ns"]["percentile"][key] / 1000 * requests
                count += requests
    return total / count


def run_cell(bench, stand, job, placement):
    words = [*FIO, "--time_based", f"--runtime={round(bench.seconds * 1000)}ms", f"--size={bench.size}",
             "--lat_percentiles=1", "--clat_percentiles=0", "--slat_percentiles=0",
             "--percentile_list=50:99:99.9", *stand.words, job.path]
    cpus = cpus_of(placement)
    for role in ROLES:
        stand.daemons.place(role, cpus[role])
    before = {role: stand.daemons.cpu_s(role) for role in ROLES}
    started = datetime.datetime.now().astimezone().isoformat()
    machine, began = machine_s(), time.monotonic()
    report, fio_s = run_fio(bench, words, cpus["fio"])
    wall_s = time.monotonic() - began
    used = {role: stand.daemons.cpu_s(role) - before[role] for role in ROLES}
    foreign_s = machine_s() - machine - fio_s - sum(used.values())
    jobs = report["jobs"]
    # What jobs count is without io_uring's threads; without the start is a guess, short cells show.
    counted_s = sum((one["usr_cpu"] + one["sys_cpu"]) / 100 * one["job_runtime"] / 1000 for one in jobs)
    used["fio"] = max(counted_s, fio_s - bench.fio_start_s)
    if any(one["error"] for one in jobs):
        raise Failed(f"fio reports the error {jobs[0]['error']}")
    requests = sum(one[way]["total_ios"] for one in jobs for way in ("read", "write"))
    if requests == 0:
        raise Failed("fio reports no request")
    cell = {"started": started, "wall_s": wall_s, "requests": requests, "cpu_s": used}
    cell |= {f"{name}_us": seconds / requests * 1e6 for name, seconds in used.items()}
    cell |= {name: percentile(jobs, key) for name, key in PERCENTILES.items()}
    cell |= {"iops": sum(one[way]["iops"] for one in jobs for way in ("read", "write")),
             "bytes_per_s": sum(one[way]["bw_bytes"] for one in jobs for way in ("read", "write")),
             "cpu_us": sum(used.values()) / requests * 1e6,
             "rss_bytes": stand.daemons.rss_bytes(),
             "others_share": max(0.0, foreign_s) / wall_s / os.cpu_count()}
    return cell
