"""Programs that use librnbd see a pause, not an error, when their server is killed and comes back."""

import os
import subprocess
import time

from harness import BUILD, Lab, check, export, free_port, wait_until

PROGRAM = os.path.join(BUILD, "tests/integration/librnbd/librnbd_through_a_restart")
SIZE = 16 << 20
KILLS = int(os.environ.get("RNBD_ROUNDS", "3"))

with Lab() as lab:
    server = lab.server([export("vol", lab.random_file("vol", SIZE))])
    for thread in ("off", "on"):
        said = lab.path(f"said-{thread}")

        def times(word):
            with open(said) as text:
                return text.read().splitlines().count(word)

        nobody = f"127.0.0.1:{free_port()}"
        with open(said, "w") as out:
            program = subprocess.Popen([PROGRAM, thread, f"127.0.0.1:{server.port}", "vol", nobody],
                                       stdin=subprocess.PIPE, stdout=out)
        # It waits for its server for ever, and who runs this test for its standard error.
        lab.cleanups.append(program.kill)
        wait_until("the volume is open", lambda: times("open") == 1)
        why = "cannot connect: Connection refused: Connection refused"
        wait_until("the other path is told, with the reason", lambda: times(f"{nobody}: {why}") == 1)
        for number in range(KILLS):
            time.sleep(0.2)
            failed = times("path not up")
            server.kill()
            wait_until("the link is down", lambda: times("link down") == number + 1)
            wait_until("an attempt that fails is told", lambda: times("path not up") > failed)
            server.start()
            wait_until("the volume is open again", lambda: times("open") == number + 2)
        program.stdin.close()
        status = program.wait(timeout=120)
        text = open(said).read()
        check(status == 0, f"no request failed: {text}")
        rounds = int(text.split("rounds ")[1])
        check(rounds > 10, f"it did something: {rounds} rounds")
        check(times(f"{nobody}: {why}") == 1, f"not told again for the same reason: {text}")
        check(times("path up") == times("path down") == KILLS + 1, f"paths are told: {text}")
