"""A write with FUA to a file on FUSE is followed by a synchronization of the file: with direct I/O nothing else makes it durable there. And each
synchronization comes by the handle that the writes came by: some file systems keep what is not written yet, and what has failed, by handle."""
from harness import *
from nbd_clients import *
from one_file_on_fuse import *

for open_flags in (0, FOPEN_DIRECT_IO):
    with Lab() as lab:
        file, done_by = file_on_fuse(lab, open_flags)
        server = lab.server([export("vol", file)])
        client = lab.client(server, {"vol": {}})
        h = connected(lab, "vol")
        what = f"open flags {open_flags}"
        handles = set()

        def expect(call, expected, words):
            done = done_by(call)
            check([one for one, _ in done] == expected, f"{what}: {words}: {done}")
            handles.update(handle for _, handle in done)

        expect(lambda: h.pwrite(b"x" * 4096, 0), ["write"], "a plain write is one")
        expect(lambda: h.pwrite(b"y" * 4096, 4096, nbd.CMD_FLAG_FUA), ["write", "sync"], "one with FUA")
        expect(lambda: h.zero(4096, 0, nbd.CMD_FLAG_FUA), ["write", "sync"], "zeroes with FUA")
        expect(h.flush, ["sync"], "a flush")
        check(len(handles) == 1, f"{what}: all by one handle: {handles}")
        check(h.pread(8192, 0) == bytes(4096) + b"y" * 4096, f"{what}: all is there")
