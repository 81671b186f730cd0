"""nbdinfo, nbdcopy, qemu-img and nbdsh work against the client's socket; the file is what was written."""
from harness import *

need("nbdcopy", "nbdinfo", "qemu-img", "nbdsh")

MIB = 1 << 20
with Lab() as lab:
    server = lab.server([
        export("buffered", lab.path("buffered.img"), "64MiB"),
        export("direct", lab.path("direct.img"), "64MiB", io="direct", block_size=4096),
        {"name": "memory", "storage": {"kind": "memory", "size": "64MiB"},
         "allow": [{"session": "host-a", "access": "rw"}]},
        {"name": "null", "storage": {"kind": "null", "size": "1TiB"},
         "allow": [{"session": "host-a", "access": "rw"}]},
    ])
    client = lab.client(server, {name: {} for name in ("buffered", "direct", "memory", "null")})
    source = lab.random_file("source", 64 * MIB)
    for device in ("buffered", "direct", "memory"):
        uri = lab.uri(device)
        info = json.loads(run("nbdinfo", "--json", "--no-content", uri).stdout)["exports"][0]
        check(info["export-size"] == 64 * MIB, info)
        check(info["can_multi_conn"] and info["can_fua"] and info["can_flush"], info)
        run("nbdcopy", "--flush", "--connections=4", source, uri)
        run("nbdcopy", uri, lab.path("back"))
        check(same(source, lab.path("back")), f"{device}: nbdcopy")
        run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", source, uri)
        run("qemu-img", "compare", "-f", "raw", "-F", "raw", source, uri)
        # Without the export's name a socket's only device is meant.
        run("nbdinfo", "--no-content", f"nbd+unix:///?socket={lab.socket('client', device)}")
    run("nbdsh", "-u", lab.uri("buffered"), "-c", f"""
b = bytes(range(256)) * 16
h.pwrite(b, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(4096, 4096) == b
h.zero(4096, 4096)
assert h.pread(4096, 4096) == bytes(4096)
h.trim(4096, 8192)
h.flush()
h.cache(65536, 0)
""")
    check(json.loads(run("nbdinfo", "--json", "--no-content", lab.uri("null")).stdout)["exports"][0]["export-size"]
          == 1 << 40, "null")
    run("nbdcopy", "--flush", source, lab.uri("buffered"))
    run("nbdcopy", "--flush", source, lab.uri("direct"))
    check(client.stop() == 0 and server.stop() == 0, "clean ends")
    check(same(source, lab.path("buffered.img")), "buffered.img equals what was written")
    check(same(source, lab.path("direct.img")), "direct.img equals what was written")
