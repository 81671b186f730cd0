"""What a program on librnbd does once a turn comes behind all answers of it, and is not left out when the session closes.

A program that leaves answers for later, when no more follow, hears of that.
"""

import os
import re

from harness import BUILD, Lab, check, export, run

PROGRAM = os.path.join(BUILD, "tests/integration/librnbd/librnbd_hears_of_turns")
REQUESTS = 2001

with Lab() as lab:
    server = lab.server([export("vol", lab.random_file("vol", 16 << 20))])
    for thread, follow in (("off", "at-once"), ("on", "at-once"), ("off", "late"), ("on", "late")):
        told = run(PROGRAM, thread, follow, f"127.0.0.1:{server.port}").stdout
        turns, rests = (int(word) for word in re.fullmatch(r"(\d+) turns, (\d+) rests\n", told).groups())
        check(1 < turns < REQUESTS, f"thread {thread}, {follow}: {told}: fewer turns than answers")
        # Of 32 at a time; and, without, at events and at the end.
        if thread == "on":
            expected = REQUESTS // 32 // 2 if follow == "late" else 0
            check(expected <= rests <= (REQUESTS if expected else 5), f"thread {thread}, {follow}: {told}")
