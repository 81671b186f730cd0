"""How long I/O stands still when the server is killed and comes back after 0.1 s.

Prints, per round, the time from the restarted server's first accepted connection to the first
answered read, and the longest stall that the NBD client saw.

    RNBD_BUILD=build-release /usr/bin/python3 tests/bench/recovery.py [ROUNDS]
"""
import argparse
import os
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../integration"))
from harness import Lab, export, skip  # noqa: E402


def positive(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"found {text}, expected a number above 0")
    return int(text)


def listening(port):
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return time.monotonic()
        time.sleep(0.0005)


def main():
    parser = argparse.ArgumentParser(description="How long I/O stands still when the server comes back.")
    parser.add_argument("rounds", nargs="?", metavar="ROUNDS", type=positive, default=20, help="default 20")
    rounds = parser.parse_args().rounds
    try:
        import nbd
    except ImportError:
        skip(f"{sys.executable} is without libnbd; /usr/bin/python3 has it from Debian's python3-libnbd")
    after_listening, stalls = [], []
    with Lab() as lab:
        server = lab.server([export("vol1", lab.path("vol1.img"), "64MiB")])
        lab.client(server, {"vol1": {}})
        handle = nbd.NBD()
        handle.connect_uri(lab.uri("vol1"))
        answered = []
        stop = threading.Event()

        def load():
            while not stop.is_set():
                handle.pread(4096, 0)
                answered.append(time.monotonic())

        thread = threading.Thread(target=load)
        thread.start()
        for _ in range(rounds):
            time.sleep(0.5)
            server.kill()
            killed = time.monotonic()
            time.sleep(0.1)
            server.start(wait=False)
            up = listening(server.port)
            time.sleep(1.0)
            last = max(t for t in answered if t <= killed + 0.01)
            first = min(t for t in answered if t > killed + 0.01)
            after_listening.append((first - up) * 1000)
            stalls.append((first - last) * 1000)
        stop.set()
        thread.join()
    for name, values in (("listening to first answer", after_listening), ("stall", stalls)):
        print(f"{name}: median {statistics.median(values):.1f} ms, "
              f"max {max(values):.1f} ms over {rounds} rounds")


main()
