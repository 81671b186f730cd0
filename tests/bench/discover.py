"""How long `rnbdctl discover` takes on a server with many exports, from its start to its end.

Over a session that is there, and over one that is made for the question; as JSON and as a table.

    RNBD_BUILD=build-release python3 tests/bench/discover.py [EXPORTS [ROUNDS]]
"""
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../integration"))
from harness import Lab, check  # noqa: E402


def null(name):
    return {"name": name, "storage": {"kind": "null", "size": 1 << 20},
            "allow": [{"session": "host-a", "access": "rw"}]}


def measure(client, count, rounds, name, words):
    took = []
    for _ in range(rounds):
        started = time.monotonic()
        answer = client.ctl(*words).stdout
        took.append((time.monotonic() - started) * 1000)
        check(f"volume-{count - 1:06}" in answer, "the last one is missing")
    print(f"{count} exports, {name}: median {statistics.median(took):.0f} ms, "
          f"max {max(took):.0f} ms over {rounds} rounds", flush=True)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    with Lab() as lab:
        server = lab.server([null(f"volume-{i:06}") for i in range(count)])
        client = lab.client(server, {"volume-000000": {}})
        there = "session that is there"
        measure(client, count, rounds, f"{there}, JSON", ["--json", "discover", "host-a"])
        measure(client, count, rounds, f"{there}, table", ["discover", "host-a"])
        client.stop()
        # Its name is free for sessions that are made for a question.
        other = lab.client(server, {}, name="other", session="host-b")
        words = ["discover", f"127.0.0.1:{server.port}", "--session", "host-a"]
        measure(other, count, rounds, "new session, JSON", ["--json", *words])


main()
