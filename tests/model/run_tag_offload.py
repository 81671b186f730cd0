#!/usr/bin/env python3
"""Verifies tests/model/tag_offload.pml exhaustively, and that it fails when a rule is left out.

    run_tag_offload.py                   everything that CTest checks: about a minute
    run_tag_offload.py story RULE ...    the shortest way to a violation, with these rules left out

Ends with 1 if an expectation does not hold, with 77 if spin or a C compiler is missing.
"""

import sys

import run

run.MODEL = run.pathlib.Path(__file__).resolve().with_name("tag_offload.pml")
run.SMALL = {"MESSAGES": 2, "RECEIVES": 2}
run.VERIFIED = {
    "three messages, three receives, a list of two": {},
    "a list of one": {"CAPACITY": 1},
    "all receives fit": {"CAPACITY": 3},
    "four messages, two receives": {"MESSAGES": 4, "RECEIVES": 2},
    "two messages, four receives, nothing cancelled":
        {"MESSAGES": 2, "RECEIVES": 4, "CANCELS": 0},
}
run.BROKEN = [["NO_HAND_OVER"], ["NOT_A_PREFIX"], ["COUNT_EARLY"], ["NOT_REMOVED"],
              ["NOT_PASSED_OVER"]]
run.DEEP = {"MESSAGES": 4, "RECEIVES": 4}

if __name__ == "__main__":
    run.__doc__ = __doc__
    sys.exit(run.main(sys.argv[1:]))
