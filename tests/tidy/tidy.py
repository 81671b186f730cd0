"""What the tidy checks share: the files of the tree, and one report of all offences."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RNBD_BUILD", ROOT / "build"))
# What is checked are texts and answers: sanitized programs, which are started hundreds of times here, take a third of the time.
os.environ["ASAN_OPTIONS"] = (os.environ.get("ASAN_OPTIONS", "") +
                              ":detect_leaks=0:detect_stack_use_after_return=0:malloc_context_size=2")


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def program(name):
    """A program of the build; skips if it was not built."""
    path = BUILD / name / name
    if not os.access(path, os.X_OK):
        skip(f"{path} is not built")
    return path


def tree():
    """Paths of the project's files below ROOT: those that git knows, or without git all."""
    listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files"], cwd=ROOT,
                            capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        names = listed.stdout.splitlines()
    else:
        names = []
        for folder, folders, files in os.walk(ROOT):
            folders[:] = [f for f in folders if not f.startswith((".git", ".cache", "build"))]
            names += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
    return sorted(name for name in names if (ROOT / name).is_file())


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


class Report:
    """Collects offences; ends the check with 1 if there are any."""

    def __init__(self):
        self.offences = []

    def add(self, where, what):
        self.offences.append(f"{where}: {what}")

    def finish(self, checked):
        for offence in self.offences:
            print(offence)
        if checked == 0:
            print("nothing was checked")
        print(f"{checked} checked, {len(self.offences)} offences")
        sys.exit(1 if self.offences or checked == 0 else 0)
