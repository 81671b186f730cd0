"""An export is resized again and again under verified load: who connects sees each size at once,
the session is the same all the time, and the load notices nothing."""
import random

from fio import start_verify
from harness import *

need("fio", "nbdinfo")
MIB = 1 << 20
BASE = 64 * MIB  # what the load knows: no size is smaller
LOAD_S = 12

try:
    import nbd
except ImportError:
    skip("python3-libnbd is not installed")


def seen(lab):
    return int(run("nbdinfo", "--size", lab.uri("vol1")).stdout)


with Lab() as lab:
    image = lab.path("vol1.img")
    server = lab.server([export("vol1", image, BASE)])
    client = lab.client(server, {"vol1": {}})
    session = server.status()["sessions"][0]["id"]

    def device():
        return client.status()["devices"][0]

    early = nbd.NBD()
    early.connect_uri(lab.uri("vol1"))
    load = start_verify(lab.uri("vol1"), LOAD_S, lab.path("fio.log"), lab.folder)
    # Ours and fio's four.
    wait_until("the load runs",
               lambda: device()["connections"] == 5 and device()["writes"] > 100)

    rounds = 0
    while load.poll() is None or rounds < 4:
        size = BASE + random.randrange(1, 65) * MIB
        server.ctl("exports", "resize", "vol1", str(size), "--shrink")
        wait_until(f"the volume has {size} bytes", lambda s=size: device()["size_bytes"] == s)
        check(seen(lab) == size, f"an NBD client sees {seen(lab)} instead of {size}")
        check(os.path.getsize(image) == size, "the file has another size")
        # The last block of the new size is there, and what lies beyond is not.
        late = nbd.NBD()
        late.connect_uri(lab.uri("vol1"))
        late.pwrite(bytes([rounds % 251 + 1]) * 4096, size - 4096)
        check(late.pread(4096, size - 4096) == bytes([rounds % 251 + 1]) * 4096, "the end")
        late.shutdown()
        rounds += 1
    check(load.wait() == 0, open(lab.path("fio.log")).read()[-3000:])

    # One that was there before knows its size alone, and goes on.
    check(early.get_size() == BASE, "an NBD client that was there keeps its size")
    early.pwrite(b"x" * 4096, 0)
    early.shutdown()
    check(server.status()["sessions"][0]["id"] == session, "the session is another")
    check(client.status()["sessions"][0]["paths"][0]["reconnects"] == 0, "a path was reconnected")
    check(device()["errors"] == 0, f"{device()['errors']} errors")
    check(device()["lost_writes"] == 0, "lost writes")
    print(f"{rounds} sizes under load")
