"""A daemon that starts the moment another was killed gets its addresses: control, RTRS, NBD.

The kernel lets go of what a killed process had in flight by and by, and of its sockets with it.
"""

import os

from harness import *

KILLS = int(os.environ.get("RNBD_ROUNDS", "20"))

with Lab() as lab:
    server = lab.server([export("vol", lab.path("vol"), "64MiB")])
    client = lab.client(server, {"vol": {}})
    nbd_port = free_port()
    client.config_with(lambda config: config["devices"][0].update(
        nbd=[f"unix:{lab.socket('client', 'vol')}", f"tcp:127.0.0.1:{nbd_port}"]))
    client.stop()
    client.start()
    for number in range(KILLS):
        wait_until("the device is open", lambda: client.status()["devices"][0]["state"] == "open")
        # I/O in flight on the sockets when the process goes.
        load = [subprocess.Popen(["qemu-io", "-f", "raw", "-c", "write -P 7 0 32M", uri],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for uri in (lab.uri("vol"), f"nbd://127.0.0.1:{nbd_port}/vol")]
        victim = (server, client)[number % 2]
        victim.kill()
        victim.start(wait=False)
        wait_until(f"{victim.name} answers", victim.answers)
        if victim is client:
            for program in load:
                program.wait(timeout=PATIENCE_S)
        else:
            for program in load:
                check(program.wait(timeout=PATIENCE_S) == 0, "a restart is a pause, not an error")
