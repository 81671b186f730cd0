"""What librnbd sends in pieces, one of which was lost: with FUA it fails, else a flush behind it does; also when another flush has told of that loss."""

import errno
import os
import subprocess

from harness import BUILD, Lab, check, wait_until

PROGRAM = os.path.join(BUILD, "tests/integration/librnbd/librnbd_in_pieces")


def said_by(lab, server, *words):
    gate = lab.path("gate")
    open(gate, "w").close()
    program = subprocess.Popen([PROGRAM, f"127.0.0.1:{server.port}", str(server.process.pid), *words],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lab.cleanups.append(program.kill)
    check(program.stdout.readline() == "sent\n", "the server has both pieces")
    wait_until("the second piece is done", lambda: server.status()["sessions"][0]["in_flight"] == 1)
    program.stdin.write("go on\n")
    program.stdin.flush()
    check(program.stdout.readline() == "killed\n", "one piece was acknowledged, the other was not")
    server.process.wait()
    os.unlink(gate)
    server.start()
    said = program.stdout.read()
    check(program.wait(timeout=120) == 0, "it ends")
    return said


with Lab() as lab:
    # A piece is 1 GiB of memory at most.
    server = lab.server([{
        "name": "vol", "allow": [{"session": "host-a", "access": "rw"}],
        "storage": {"kind": "delay", "of": {"kind": "memory", "size": "2GiB"}, "gate": lab.path("gate"),
                    "gate_count": 1}}])
    said = said_by(lab, server, "forced")
    check(said == f"flush {-errno.EIO}, zeroes {-errno.EIO}, forced 0, flush 0, flush 0\n", f"both hear of it: {said!r}")
    said = said_by(lab, server)
    check(said == f"flush {-errno.EIO}, zeroes 0, forced 0, flush {-errno.EIO}, flush 0\n",
          f"and so does a flush behind what was acknowledged: {said!r}")
