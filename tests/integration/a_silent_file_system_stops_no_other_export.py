"""A file system that stops answering under one export keeps no other from its I/O, nor the server from its
commands; when it answers again that export goes on, and the server ends in order."""
from harness import *
from nbd_clients import *
from silent_files import *

BLOCK = 4096
READS = 64

with Lab() as lab:
    far, far_process = mounted(lab, "far")
    read_only, read_only_process = mounted(lab, "read_only")
    server = lab.server([export("far", far), export("gone", read_only, access="ro", read_only=True),
                         export("near", lab.path("near"), SIZE)])
    reasons = lambda: {e["name"]: e["reason"] for e in server.status()["exports"]}
    client = lab.client(server, {"far": {}, "near": {}})
    h = {}
    for name in ("far", "near"):
        h[name] = nbd.NBD()
        h[name].add_meta_context("base:allocation")
        h[name].connect_uri(lab.uri(name))
    for handle in h.values():
        handle.pwrite(b"a" * BLOCK, 0)
        handle.flush()

    with stopped(far_process, read_only_process):
        wait_until("the server has noticed", lambda: "does not answer" in reasons()["far"] and
                   "does not answer" in reasons()["gone"])
        check(reasons()["near"] == "", "the other one is well")
        # More of them than the kernel has threads for such by itself.
        buffers = [nbd.Buffer(BLOCK) for _ in range(READS)]
        cookies = [h["far"].aio_pread(buffer, 0) for buffer in buffers]
        zeroes = [h["far"].aio_zero(BLOCK, (1 << 20) + number * BLOCK) for number in range(READS)]
        asked = []
        h["far"].aio_block_status(SIZE, 0, lambda context, offset, entries, error: asked.append(entries) and 0)
        # More than one look's time, and with what the kernel does on threads of its own.
        for number in range(300):
            h["near"].pwrite(number.to_bytes(2, "little") * 2048, number * BLOCK)
            h["near"].flush()
            time.sleep(0.01)
        told = []
        h["near"].block_status(SIZE, 0, lambda context, offset, entries, error: told.append(entries) and 0)
        check(told, "what is allocated of the other is told")
        check(h["far"].aio_in_flight() == 2 * READS + 1, "the requests of the one wait")
        # An export is removed that waits for nothing but its name.
        server.ctl("exports", "remove", "gone")
        wait_until("it is removed", lambda: "gone" not in reasons())
        h["near"].pwrite(b"b" * BLOCK, 0)

    for cookie, buffer in zip(cookies, buffers):
        wait_until("a read is answered", lambda: h["far"].aio_command_completed(cookie) or h["far"].poll(1000) < 0)
        check(bytes(buffer.to_bytearray()) == b"a" * BLOCK, "it has what was written")
    for cookie in zeroes:
        wait_until("zeroes are written", lambda: h["far"].aio_command_completed(cookie) or h["far"].poll(1000) < 0)
    wait_until("all is well", lambda: reasons()["far"] == "")
    h["far"].pwrite(b"c" * BLOCK, BLOCK)
    h["far"].flush()
    check(bytes(h["far"].pread(2 * BLOCK, 0)) == b"a" * BLOCK + b"c" * BLOCK, "its data are there")
    check(bytes(h["near"].pread(BLOCK, 0)) == b"b" * BLOCK, "those of the other, too")
    for handle in h.values():
        handle.shutdown()
    check(client.stop() == 0, "the client ends in order")
    check(server.stop() == 0, "the server ends in order")
