#!/usr/bin/env python3
"""Verifies tests/model/failover.pml exhaustively, and that it fails when a rule is left out.

    run.py                   everything that CTest checks: a minute or two, below 3 GB
    run.py deep              one larger search: a few minutes, with RNBD_MODEL_MB=6000
    run.py story RULE ...    the shortest way to a violation, with these rules left out

Every search stores complete states (no bitstate hashing). Ends with 1 if an expectation does not
hold, with 77 if spin or a C compiler is missing.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

MODEL = pathlib.Path(__file__).resolve().with_name("failover.pml")
COMPILER = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
MEMORY_MB = int(os.environ.get("RNBD_MODEL_MB", 3000))

SMALL = {"WRITES": 2, "READS": 1, "LOSSES": 2, "ERRORS": 0}
# What must hold. Bounds that are not named are the model's own.
VERIFIED = {
    "three writes, a read, three losses": {"WRITES": 3, "READS": 1, "LOSSES": 3, "ERRORS": 0},
    "four writes, three losses": {"WRITES": 4, "READS": 0, "LOSSES": 3, "ERRORS": 0},
    "a storage error": {"WRITES": 2, "READS": 1, "LOSSES": 3, "ERRORS": 1},
    "two requests given up, four losses":
        {"WRITES": 2, "READS": 1, "LOSSES": 4, "ERRORS": 0, "GIVE_UPS": 2},
    "three paths, one permit":
        {"PATHS": 3, "PERMITS": 1, "WRITES": 3, "READS": 1, "LOSSES": 4, "ERRORS": 0},
    "without the extension, nothing given up":
        {**SMALL, "LOSSES": 3, "GIVE_UPS": 0, "FENCED": None, "OTHERS_GO_ON": None},
    "without the extension, everything waits for the path of what was given up":
        {**SMALL, "LOSSES": 3, "FENCED": None},
}
# What must be found: the rules that are left out.
BROKEN = [
    ["NO_ADMISSION"],
    ["NO_ADMISSION", "BLACK_BOX"],
    ["RETRY_NOT_WAITING", "BLACK_BOX"],
    ["RERUN_DONE", "BLACK_BOX"],
    ["NO_FENCE", "BLACK_BOX"],
    ["SHARED_CHUNKS"],
    ["FORGET_EARLY"],
    ["OLDER_RESULT"],
    ["OTHERS_GO_ON", "BLACK_BOX"],
    ["FENCED", "OTHERS_GO_ON"],
]
DEEP = {"WRITES": 3, "READS": 1, "LOSSES": 3, "ERRORS": 1}


class Search:
    """One compiled verifier and what it has found."""

    def __init__(self, folder, defines, options):
        self.folder = folder
        flags = [f"-D{name}" if value is None else f"-D{name}={value}"
                 for name, value in defines.items()]
        self.run(["spin", *flags, "-a", str(MODEL)])
        self.run([COMPILER, "-w", "-DSAFETY", "-DNOREDUCE", f"-DMEMLIM={MEMORY_MB}", *options,
                  "-o", "pan", "pan.c"])
        started = time.monotonic()
        self.text = self.run(["./pan", "-m20000", "-w24"], may_fail=True)
        self.seconds = time.monotonic() - started
        states = re.search(r"(\d[\d.e+]*) states, stored", self.text)
        errors = re.search(r"errors: (\d+)", self.text)
        self.states = int(float(states[1])) if states else 0
        self.errors = int(errors[1]) if errors else None
        # Anything of these means that not everything was searched.
        self.complete = errors is not None and not re.search(
            r"search depth too small|out of memory|memory limit|not completed|truncated", self.text)
        self.rare = {name: int(count) for count, name in re.findall(r"^RARE (\d+) (.*)$", self.text,
                                                                    re.MULTILINE)}

    def run(self, command, may_fail=False):
        result = subprocess.run(command, cwd=self.folder, text=True, errors="replace",
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if result.returncode != 0 and not may_fail:
            sys.exit(f"{' '.join(command)}\n{result.stdout}")
        return result.stdout

    def violated(self):
        found = re.search(r"pan:1: (.*) \(at depth", self.text)
        return found[1] if found else "nothing"

    def story(self):
        trails = list(pathlib.Path(self.folder).glob("*.trail"))
        if not trails:
            return ["(no trail)"]
        text = self.run(["./pan", "-r", str(trails[0])], may_fail=True)
        return [line.split("EVENT ", 1)[1] for line in text.splitlines() if "EVENT " in line]


def search(defines, *options):
    with tempfile.TemporaryDirectory(prefix="rnbd-model-") as folder:
        found = Search(folder, defines, options)
        found.steps = found.story() if found.errors else []
        return found


def shortest(rules):
    return search({**SMALL, **{rule: None for rule in rules}, "STORY": None}, "-O1", "-DBFS")


def verify(name, defines, rare):
    found = search(defines, "-O2")
    for case, count in found.rare.items():
        rare[case] = rare.get(case, 0) + count
    good = found.complete and found.errors == 0
    print(f"{'ok  ' if good else 'FAIL'} {name}: {found.states} states, "
          f"{found.seconds:.0f} s", flush=True)
    if found.errors:
        print(f"     violated: {found.violated()}")
        for step in found.steps:
            print(f"       {step}")
    elif not good:
        print(found.text)
    return good, found.states


def check():
    failures, states, rare = 0, 0, {}
    for name, defines in VERIFIED.items():
        good, count = verify(name, defines, rare)
        failures += not good
        states += count
    for case, count in rare.items():
        if count == 0:
            print(f"FAIL never happened in any search: {case}")
            failures += 1
    for rules in BROKEN:
        found = shortest(rules)
        good = "assertion violated" in found.violated()
        failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {' '.join(rules)}: "
              f"{f'found in {len(found.steps)} steps' if good else 'NOT found'}", flush=True)
        if not good:
            print(found.text)
    print(f"{states} states")
    print(f"{len(VERIFIED)} models verified, {len(BROKEN)} broken ones, {failures} surprises")
    return 1 if failures else 0


def main(arguments):
    missing = [name for name, found in (("spin", shutil.which("spin")),
                                        ("a C compiler", COMPILER)) if not found]
    if missing:
        print(f"SKIPPED: {' and '.join(missing)} not installed")
        return 77
    if not arguments:
        return check()
    if arguments == ["deep"]:
        return 0 if verify("deep", DEEP, {})[0] else 1
    if arguments[0] == "story" and len(arguments) > 1:
        found = shortest(arguments[1:])
        print("\n".join(found.steps))
        print(f"violated: {found.violated()}")
        return 0 if found.errors else 1
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
