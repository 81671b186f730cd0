"""An export is resized again and again under verified load: who connects sees each size at once,
the session is the same all the time, and the load notices nothing."""
import random

from fio import VerifiedLoad
from harness import *

need("fio", "nbdinfo")
MIB = 1 << 20
BASE = 64 * MIB  # what the load knows: no size is smaller
ROUNDS = int(os.environ.get("RNBD_ROUNDS", "10"))

try:
    import nbd
except ImportError:
    skip("python3-libnbd is not installed")


def seen(lab):
    return int(run("nbdinfo", "--size", lab.uri("vol1")).stdout)


with Lab() as lab:
    image = lab.path("vol1.img")
    server = lab.server([export("vol1", image, BASE)], heartbeat=PATIENT["heartbeat"])
    client = lab.client(server, {"vol1": {}}, session_options=PATIENT)
    session = server.status()["sessions"][0]["id"]

    def device():
        return client.status()["devices"][0]

    early = nbd.NBD()
    early.connect_uri(lab.uri("vol1"))
    load = VerifiedLoad(lab, client, "vol1")
    wait_until("the load runs", lambda: device()["connections"] == load.CONNECTIONS + 1)  # and ours
    load.wait_for_writes(100)

    for number in range(ROUNDS):
        load.check_running()
        size = BASE + random.randrange(1, 65) * MIB
        server.ctl("exports", "resize", "vol1", str(size), "--shrink")
        wait_until(f"the volume has {size} bytes", lambda s=size: device()["size_bytes"] == s)
        check(seen(lab) == size, f"an NBD client sees {seen(lab)} instead of {size}")
        check(os.path.getsize(image) == size, "the file has another size")
        # The last block of the new size is there, and what lies beyond is not.
        late = nbd.NBD()
        late.connect_uri(lab.uri("vol1"))
        late.pwrite(bytes([number % 251 + 1]) * 4096, size - 4096)
        check(late.pread(4096, size - 4096) == bytes([number % 251 + 1]) * 4096, "the end")
        late.shutdown()
    load.finish()

    # One that was there before knows its size alone, and goes on.
    check(early.get_size() == BASE, "an NBD client that was there keeps its size")
    early.pwrite(b"x" * 4096, 0)
    early.shutdown()
    check(server.status()["sessions"][0]["id"] == session, "the session is another")
    check(client.status()["sessions"][0]["paths"][0]["reconnects"] == 0, "a path was reconnected")
    check(device()["errors"] == 0, f"{device()['errors']} errors")
    check(device()["lost_writes"] == 0, "lost writes")
    print(f"{ROUNDS} sizes under load")
