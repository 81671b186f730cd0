"""What a program on librnbd does once a turn comes behind all answers of it, and is not left out when the session closes."""

import os

from harness import BUILD, Lab, check, export, run

PROGRAM = os.path.join(BUILD, "tests/integration/librnbd/librnbd_hears_of_turns")
REQUESTS = 2001

with Lab() as lab:
    server = lab.server([export("vol", lab.random_file("vol", 16 << 20))])
    for thread in ("off", "on"):
        told = run(PROGRAM, thread, f"127.0.0.1:{server.port}").stdout.split()
        check(told[1] == "turns" and 1 < int(told[0]) < REQUESTS, f"thread {thread}: {told}: fewer turns than answers")
