"""A program on librnbd hears of a new size at once if its session follows the catalog, else when its volume is opened again."""

import os
import subprocess

from harness import BUILD, Lab, check, export, wait_until

PROGRAM = os.path.join(BUILD, "tests/integration/librnbd/librnbd_watches_size")
SMALL, LARGE = 8 << 20, 16 << 20

with Lab() as lab:
    server = lab.server([export("vol", lab.random_file("vol", SMALL))])
    for catalog in ("on", "off"):
        said = lab.path(f"said-{catalog}")

        def lines():
            with open(said) as text:
                return text.read().splitlines()

        with open(said, "w") as out:
            program = subprocess.Popen([PROGRAM, catalog, f"127.0.0.1:{server.port}", "vol"],
                                       stdin=subprocess.PIPE, stdout=out)
        lab.cleanups.append(program.kill)
        wait_until("it is open", lambda: lines() == [f"open {SMALL} {SMALL}"])
        server.ctl("exports", "resize", "vol", "16MiB")
        if catalog == "off":
            check(len(lines()) == 1, "it is not told")
            server.kill()
            server.start()
            wait_until("it is open again", lambda: len(lines()) > 2)
            check(lines()[1] == f"open {LARGE} {LARGE}", lines())
        wait_until("it is told", lambda: lines()[-1] == f"resized {LARGE} {LARGE}")
        program.stdin.close()
        check(program.wait(timeout=60) == 0, "it ends")
        server.ctl("exports", "resize", "vol", "8MiB", "--shrink")
