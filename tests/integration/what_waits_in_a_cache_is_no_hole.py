"""Block status calls nothing a hole that was written and acknowledged, also where the file is on FUSE and the write is still in the kernel's cache,
of which the file system does not know."""
from harness import *
from nbd_clients import *
from one_file_on_fuse import *

with Lab() as lab:
    file, done_by = file_on_fuse(lab, init_flags=WRITEBACK_CACHE)
    server = lab.server([export("vol", file)])
    client = lab.client(server, {"vol": {}})
    h = nbd.NBD()
    h.add_meta_context("base:allocation")
    h.connect_uri(lab.uri("vol"))
    h.pwrite(b"x" * PAGE, PAGE)
    found = []
    if h.can_meta_context("base:allocation"):
        h.block_status(SIZE, 0, lambda context, at, entries, error: found.extend(entries))
    at = 0
    for size, flags in zip(found[::2], found[1::2]):
        overlaps = at < 2 * PAGE and at + size > PAGE
        check(not overlaps or flags == 0, f"what was written is data: {found}")
        at += size
