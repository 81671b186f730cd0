"""A request with FUA that librnbd sends in pieces fails if one of them was lost, also when another flush has told of that loss."""

import errno
import os
import subprocess

from harness import BUILD, Lab, check

PROGRAM = os.path.join(BUILD, "tests/integration/librnbd/librnbd_forced_pieces")

with Lab() as lab:
    gate = lab.path("gate")
    open(gate, "w").close()
    # A piece is 1 GiB of memory at most.
    server = lab.server([{
        "name": "vol", "allow": [{"session": "host-a", "access": "rw"}],
        "storage": {"kind": "delay", "of": {"kind": "memory", "size": "2GiB"}, "gate": gate,
                    "gate_count": 1}}])
    program = subprocess.Popen([PROGRAM, f"127.0.0.1:{server.port}", str(server.process.pid)],
                               stdout=subprocess.PIPE, text=True)
    lab.cleanups.append(program.kill)
    check(program.stdout.readline() == "killed\n", "one piece was acknowledged, the other was not")
    server.process.wait()
    os.unlink(gate)
    server.start()
    said = program.stdout.read()
    check(program.wait(timeout=120) == 0, "it ends")
    check(said == f"flush {-errno.EIO}, zeroes {-errno.EIO}\n", f"both hear of it: {said!r}")
