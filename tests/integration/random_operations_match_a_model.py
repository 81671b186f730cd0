"""Reads, writes, FUA, flush, trim, zero, cache and block status, many in flight: as a byte array."""
from harness import *
from nbd_clients import *

SIZE = 32 << 20
ROUNDS = int(os.environ.get("RNBD_ROUNDS", "1500"))
SEED = int(os.environ.get("RNBD_SEED", str(random.randrange(1 << 32))))
DEPTH = 32


def pieces(rng, block):
    """Disjoint ranges, so that the order of what is in flight does not matter."""
    length = rng.choice([block, 2 * block, 8 * block, 64 << 10, 200 << 10, 1 << 20])
    length = max(block, length // block * block)
    taken = []
    while len(taken) < DEPTH:
        n = rng.randrange(block, length + 1, block)
        at = rng.randrange(0, SIZE - n + 1, block)
        if all(at + n <= a or a + m <= at for a, m in taken):
            taken.append((at, n))
        else:
            length = max(block, length // 2 // block * block)
    return taken


def batch(rng, h, model, block):
    done = []
    buffers = []
    for at, n in pieces(rng, block):
        kind = rng.choice(["read", "read", "write", "write", "fua", "trim", "zero", "zero-keep",
                           "cache", "flush"])
        # A callback that returns 1 retires the command.
        completed = lambda error, done=done: (done.append(error.value), 1)[1]
        if kind == "read":
            buffer = nbd.Buffer(n)
            h.aio_pread(buffer, at, completed)
            buffers.append((buffer, bytes(model[at:at + n]), at))
        elif kind in ("write", "fua"):
            data = rng.randbytes(n)
            h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(data)), at, completed,
                         nbd.CMD_FLAG_FUA if kind == "fua" else 0)
            model[at:at + n] = data
        elif kind == "trim":
            # What a trimmed range reads as is not promised: write it anew at once.
            h.trim(n, at)
            data = rng.randbytes(n)
            h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(data)), at, completed)
            model[at:at + n] = data
        elif kind in ("zero", "zero-keep"):
            h.aio_zero(n, at, completed, nbd.CMD_FLAG_NO_HOLE if kind == "zero-keep" else 0)
            model[at:at + n] = bytes(n)
        elif kind == "cache":
            h.aio_cache(n, at, completed)
        else:
            h.aio_flush(completed)
    while len(done) < DEPTH:
        h.poll(-1)
    check(not any(done), f"errors: {done}")
    for buffer, expected, at in buffers:
        check(bytes(buffer.to_bytearray()) == expected, f"read at {at} differs")


print(f"RNBD_SEED={SEED}")
with Lab() as lab:
    kinds = {"buffered": 512, "direct": 4096, "memory": 512}
    server = lab.server([
        export("buffered", lab.path("buffered.img"), SIZE),
        export("direct", lab.path("direct.img"), SIZE, io="direct", block_size=4096),
        {"name": "memory", "storage": {"kind": "memory", "size": SIZE},
         "allow": [{"session": "host-a", "access": "rw"}]},
    ])
    lab.client(server, {kind: {} for kind in kinds})
    for number, (kind, block) in enumerate(kinds.items()):
        rng = random.Random(SEED + number)
        model = bytearray(SIZE)
        for structured in (True, False):
            h = nbd.NBD()
            h.set_request_structured_replies(structured)
            h.connect_uri(lab.uri(kind))
            for _ in range(max(1, ROUNDS // DEPTH // 6)):
                batch(rng, h, model, block)
            h.shutdown()
        run("nbdcopy", lab.uri(kind), lab.path("back"))
        with open(lab.path("back"), "rb") as back:
            check(back.read() == model, f"{kind}: the whole device")
