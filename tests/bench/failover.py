"""What a failing path costs: the longest stall per kind of failure, and what two links carry.

Prints two tables. Stalls are of 4 KiB random writes at depth 32 that are read back and checked: the
longest time that any one I/O took, from the failure on. Rates are at depth 32, medians of ROUNDS
where the processor is the limit; there it is the processor's time that counts on a busy machine.

    RNBD_BUILD=build-release python3 tests/bench/failover.py [stalls|rates] [ROUNDS]
"""
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../integration"))
from multipath_lab import *  # noqa: E402,F403

PROFILES = {"default": ({}, {}),
            "tuned": (TUNED, {"heartbeat": TUNED["heartbeat"]})}  # client, server
RATE_MBIT = 400
MEMORY = {"name": "vol1", "allow": [{"session": "host-a", "access": "rw"}],
          "storage": {"kind": "memory", "size": "128MiB"}}


def rate(figures):
    return (figures["reads"] + figures["writes"]) / figures["seconds"]


def one_failure(lab, judge, link, fault):
    """Rate before and after, stall, and how long the path was away after the link was healed."""
    judge.mark()
    time.sleep(1)
    before = rate(judge.mark())
    lab.net.break_link(link, fault)
    lab.wait_for_loss(link)
    time.sleep(0.5)
    stall = judge.mark()
    reason = lab.path_of(link)["reason"]
    lab.net.heal(link)
    healed = time.monotonic()
    lab.wait_for_paths()
    back = time.monotonic() - healed
    judge.mark()
    time.sleep(1)
    return {"before": before, "after": rate(judge.mark()), "stall_ms": stall["longest_ms"],
            "gap_ms": stall["gap_ms"], "back_s": back, "reason": reason}


def stalls(rounds):
    print(f"{'profile':8} {'failure':24} {'stall ms':>9} {'(median)':>9} {'gap ms':>8} "
          f"{'back s':>7} {'IOPS before':>12} {'after':>8}  reason")
    errors = mismatches = 0
    for profile, (client, server) in PROFILES.items():
        for fault in FAULTS:
            results = []
            for n in range(rounds):
                # New daemons: a path that fails again and again is held back.
                with MultipathLab() as lab:
                    lab.network()
                    lab.start_server([MEMORY], **server)
                    lab.start_client(["vol1"], **client)
                    judge = lab.judge("vol1", blocks=8192, reads=10)
                    results.append(one_failure(lab, judge, n % 2, fault))
                    end = judge.finish()
                    errors, mismatches = errors + end["errors"], mismatches + end["mismatches"]
            of = lambda key: [result[key] for result in results]
            print(f"{profile:8} {fault:24} {max(of('stall_ms')):9.0f} "
                  f"{statistics.median(of('stall_ms')):9.0f} {max(of('gap_ms')):8.0f} "
                  f"{max(of('back_s')):7.2f} {statistics.median(of('before')):12.0f} "
                  f"{statistics.median(of('after')):8.0f}  {results[-1]['reason']}", flush=True)
    print(f"errors {errors}, mismatches {mismatches}")


def processor_seconds(daemon):
    with open(f"/proc/{daemon.process.pid}/stat") as stat:
        words = stat.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def carried(links, policy, limited, reads, block_size):
    """MB/s, and seconds of processor time that both daemons took for a GB."""
    with MultipathLab() as lab:
        net = lab.network(links=links)
        if limited:
            for space in net.spaces():
                for link in range(links):
                    run("tc", "-n", space, "qdisc", "add", "dev", f"link{link}", "root", "tbf",
                        "rate", f"{RATE_MBIT}mbit", "burst", "256kb", "latency", "50ms")
        daemons = [lab.start_server([MEMORY]), lab.start_client(["vol1"], policy=policy)]
        judge = lab.judge("vol1", blocks=1000, block_size=block_size, reads=reads)
        time.sleep(0.5)
        judge.mark()
        took = -sum(processor_seconds(daemon) for daemon in daemons)
        time.sleep(3)
        figures = judge.mark()
        took += sum(processor_seconds(daemon) for daemon in daemons)
        judge.finish()
        return figures["bytes"] / figures["seconds"] / 1e6, took / (figures["bytes"] / 1e9)


def rates(rounds):
    print(f"{'limit':18} {'policy':14} {'I/O':14} {'1 path':>8} {'2 paths':>8} {'4 paths':>8} MB/s"
          f"  {'1 path':>8} {'2 paths':>8} {'4 paths':>8} processor s/GB")
    limit = f"{RATE_MBIT} Mbit/s a link"
    cases = [(limit, policy, 128 << 10, 1) for policy in
             ("round-robin", "min-inflight", "min-latency", "service-time")]
    cases += [("processor", policy, block_size, rounds) for block_size in (128 << 10, 4 << 10)
              for policy in ("round-robin", "min-inflight")]
    for name, policy, block_size, repeated in cases:
        for kind, reads in (("write", 0), ("read", 100)):
            results = {links: [] for links in (1, 2, 4)}
            for _ in range(repeated):
                for links, of_links in results.items():
                    of_links.append(carried(links, policy, name == limit, reads, block_size))
            median = lambda which: " ".join(
                f"{statistics.median(pair[which] for pair in of_links):8.1f}"
                for of_links in results.values())
            print(f"{name:18} {policy:14} {f'{kind} {block_size >> 10} KiB':14} {median(0)}       "
                  f"{median(1)}", flush=True)


if __name__ == "__main__":
    words, tables, count = sys.argv[1:], {"stalls": stalls, "rates": rates}, 3
    if words and words[0] in tables:
        tables = {words[0]: tables[words.pop(0)]}
    if words and words[0].isdigit() and int(words[0]) > 0:
        count = int(words.pop(0))
    if words:
        print(f"usage: {sys.argv[0]} [stalls|rates] [ROUNDS]", file=sys.stderr)
        sys.exit(2)
    for table in tables.values():
        table(count)
