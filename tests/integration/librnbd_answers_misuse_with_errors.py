"""What a program does wrong with librnbd is answered with an error, with and without a thread."""

import os

from harness import BUILD, Lab, check, run

PROGRAM = os.path.join(BUILD, "tests/integration/librnbd/librnbd_misuse")
SIZE = 16 << 20


def allowed(lab, name, access="rw"):
    return {"name": name, "path": lab.random_file(name, SIZE),
            "allow": [{"session": session, "access": access} for session in ("host-a", "host-b")]}


with Lab() as lab:
    server = lab.server([allowed(lab, "vol"), allowed(lab, "other"), allowed(lab, "ro", "ro")])
    for thread in ("off", "on"):
        said = run(PROGRAM, thread, f"127.0.0.1:{server.port}").stdout
        check("requests" in said, f"it came to its end: {said!r}")
