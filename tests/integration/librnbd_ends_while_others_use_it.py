"""A session or volume of librnbd that ends, or cannot begin, leaves nobody waiting, unanswered or with memory that is gone."""

import os
import subprocess
import time

from harness import BUILD, Lab, check, export, run

PROGRAM = os.path.join(BUILD, "tests/integration/librnbd/librnbd_ends")
SIZE = 16 << 20
# Some need a second thread, or have none.
CASES = (("handles", "off"), ("handles", "on"), ("waits", "on"), ("accepted", "on"), ("threads", "on"), ("locked", "off"),
         ("looks", "off"), ("looks", "on"), ("forks", "off"), ("forks", "on"),
         ("names", "off"), ("names", "on"), ("made", "off"), ("made", "on"), ("descriptor", "off"),
         ("gives-up", "off"), ("gives-up", "on"), ("unsaid", "off"), ("unsaid", "on"),
         ("parts", "off"), ("parts", "on"))

with Lab() as lab:
    # What is longer than a GiB of memory is two requests.
    parts = {"name": "parts", "allow": [{"session": "host-a", "access": "rw"}],
             "storage": {"kind": "delay", "of": {"kind": "memory", "size": "2GiB"}, "write": "8s", "every": 2, "by": "8s"}}
    server = lab.server([export("vol", lab.random_file("vol", SIZE)), parts])
    # What was given back to malloc is not what it was.
    scribbled = dict(os.environ, MALLOC_PERTURB_="165")

    def words(case, thread):
        return PROGRAM, case, thread, f"127.0.0.1:{server.port}", str(server.process.pid)

    for case, thread in CASES:
        ended = run(*words(case, thread), ok=False, env=scribbled)
        check(ended.returncode == 0 and ended.stdout == "done\n", f"{case}, thread {thread}: {ended}")
        if case in ("accepted", "unsaid"):  # which has killed it
            server.process.wait()
            server.start()
    for thread in ("off", "on"):
        program = subprocess.Popen(words("stubborn", thread), stdout=subprocess.PIPE, text=True)
        lab.cleanups.append(program.kill)
        check(program.stdout.readline() == "refused\n", "its server has gone")
        server.process.wait()
        server.start()
        check(program.stdout.read() == "done\n" and program.wait() == 0, f"stubborn, thread {thread}")
    lab.random_file("later", SIZE)
    for case, thread in (("refused", "off"), ("refused", "on"), ("anew", "off"), ("anew", "on")):
        program = subprocess.Popen(words(case, thread), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        lab.cleanups.append(program.kill)
        check(program.stdout.readline() == "refused\n", "it is refused at first")
        if case == "refused":
            time.sleep(1)
        server.ctl("exports", "add", "later", lab.path("later"), "--allow", "host-a=rw")
        said = program.communicate("\n")[0]
        check(said == "done\n" and program.returncode == 0, f"{case}, thread {thread}: {said}")
        server.ctl("exports", "remove", "later")
