"""kill -9 of the server under verified load, again and again: I/O stalls and goes on, no error.

RNBD_ROUNDS=100 is the long run.
"""
from harness import *
from fio import *

need("fio")
ROUNDS = int(os.environ.get("RNBD_ROUNDS", "4"))
with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "256MiB")])
    client = lab.client(server, {"vol1": {}})
    load = VerifiedLoad(lab, client, "vol1")
    for _ in range(ROUNDS):
        time.sleep(random.uniform(0.3, 0.8))
        load.check_running()
        server.kill()
        time.sleep(random.uniform(0, 0.2))
        server.start()
        wait_until("the device is open again", lambda: all(
            d["state"] == "open" for d in client.status()["devices"]))
    load.finish()
    errors = client.status()["devices"][0]["errors"]
    check(errors == 0, f"{errors} NBD requests failed")
    print(f"{ROUNDS} rounds, no error")
