"""fio with 4 jobs, 512 B to 1 MiB, depth 32, flush and trim mixed in: no error, no mismatch."""
from harness import *
from fio import *

need("fio")
SECONDS = int(os.environ.get("RNBD_FIO_SECONDS", "5"))
with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "256MiB"),
                         export("vol2", lab.path("vol2.img"), "256MiB", io="direct")])
    lab.client(server, {"vol1": {}, "vol2": {}})
    fio_verify(lab.uri("vol1"), SECONDS, block=512)
    fio_verify(lab.uri("vol2"), SECONDS, block=4096)
