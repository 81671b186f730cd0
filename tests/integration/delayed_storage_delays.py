"""A gate holds writes until its file is removed, and reads pass; the export says that it does so."""
from harness import *
from nbd_clients import *


def finish(h, cookie):
    def done():
        h.poll(100)
        return h.aio_command_completed(cookie)
    wait_until("the held write is answered", done)


def in_file(path, offset):
    with open(path, "rb") as image:
        image.seek(offset)
        return image.read(4096)


def in_flight(server):
    return server.status()["sessions"][0]["in_flight"]


with Lab() as lab:
    allow = [{"session": "host-a", "access": "rw"}]

    def delayed(name, **options):
        inner = {"kind": "path", "path": lab.path(f"{name}.img"), "size": "1MiB"}
        return {"name": name, "allow": allow,
                "storage": dict(options, kind="delay", of=inner, gate=lab.path(f"{name}.gate"))}

    def close_gate(name):
        with open(lab.path(f"{name}.gate"), "w"):
            pass

    def open_gate(name):
        os.unlink(lab.path(f"{name}.gate"))

    names = ("all", "first", "done", "slow")
    server = lab.server([
        delayed("all"),
        delayed("first", gate_count=1),
        delayed("done", when="after"),
        delayed("slow", read="1ms", write="2ms", flush="3ms", every=5, by="20ms"),
        {"name": "memory", "storage": {"kind": "memory", "size": "1MiB"}, "allow": allow},
    ])
    client = lab.client(server, {name: {} for name in names})
    for name in names:
        check(any("WARN" in line.upper() and f"{name}: this export delays I/O on purpose" in line
                  for line in server.log().splitlines()), f"the log warns of {name}")
    check("memory: this export" not in server.log(), "and not of the others")
    check({e["name"] for e in server.status()["exports"] if e["delayed"]} == set(names), "status")
    check("all.img (delayed)" in server.ctl("status").stdout, "shown to people")

    # Every write waits, and nothing of it is in the file; reads pass.
    h = connected(lab, "all")
    h.pwrite(b"a" * 4096, 0)
    close_gate("all")
    data = nbd.Buffer.from_bytearray(bytearray(b"b" * 4096))
    cookie = h.aio_pwrite(data, 0)
    wait_until("the server has the write", lambda: h.poll(10) is not None and in_flight(server) == 1)
    check(h.pread(4096, 0) == b"a" * 4096, "a read passes and sees the old data")
    check(in_file(lab.path("all.img"), 0) == b"a" * 4096, "the write has not reached the file")
    check(not h.aio_command_completed(cookie), "nor is it answered")
    open_gate("all")
    finish(h, cookie)
    check(h.pread(4096, 0) == b"b" * 4096, "then it has")
    check(in_file(lab.path("all.img"), 0) == b"b" * 4096, "in the file, too")

    # Only the first one waits.
    h = connected(lab, "first")
    close_gate("first")
    cookie = h.aio_pwrite(data, 0)
    wait_until("the server has the write", lambda: h.poll(10) is not None and in_flight(server) == 1)
    h.pwrite(b"c" * 4096, 4096)
    check(in_file(lab.path("first.img"), 4096) == b"c" * 4096, "the second one passes")
    check(in_file(lab.path("first.img"), 0) == bytes(4096), "the first one waits")
    open_gate("first")
    finish(h, cookie)

    # The medium has it, the answer waits.
    h = connected(lab, "done")
    close_gate("done")
    cookie = h.aio_pwrite(data, 0)
    wait_until("the file has the write", lambda: h.poll(10) is not None and
               in_file(lab.path("done.img"), 0) == b"b" * 4096)
    check(not h.aio_command_completed(cookie), "but it is not answered")
    open_gate("done")
    finish(h, cookie)

    h = connected(lab, "slow")
    for i in range(20):
        h.pwrite(bytes([i]) * 512, i * 512)
        check(h.pread(512, i * 512) == bytes([i]) * 512, "late, but right")
    h.flush()
