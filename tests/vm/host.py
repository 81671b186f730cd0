"""For scripts on this side of a guest: starts one (tests/vm/run) and judges how it ends."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/integration")
from harness import *  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = os.path.join(HERE, "run")


def guest(lab, options, program, on_line=None):
    """Runs the program in a guest with these options of tests/vm/run; on_line(line) sees what it prints. Returns
    what was said beside that."""
    with open(lab.path("guest.log"), "w+") as log:
        process = subprocess.Popen([RUN, *options, *program], text=True, stdout=subprocess.PIPE, stderr=log)
        for line in process.stdout:
            print(f"    {line}", end="", flush=True)
            if on_line:
                on_line(line)
        status = process.wait()
        log.seek(0)
        said = log.read()
    if status == 77:
        skip(said.strip())
    check(status == 0, f"the guest ended with {status}: {said[-6000:]}")
    return said


def this_script(file, *arguments):
    """The program of guest() that is this script, told so by its first argument."""
    return ["env", f"RNBD_BUILD={BUILD}", sys.executable, os.path.abspath(file), "guest", *arguments]
