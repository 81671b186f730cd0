"""A program on librnbd whose volume was written to by another one, while it was taken away, hears ESTALE, for what it held and ever after."""
import errno
import subprocess

from harness import *
from nbd_clients import *

PROGRAM = os.path.join(BUILD, "tests/integration/librnbd/librnbd_writes_at_a_word")

with Lab() as lab:
    server = lab.server([{"name": "vol", "storage": {"kind": "memory", "size": "1MiB"},
                          "allow": [{"session": name, "access": "rw"} for name in ("host-a", "host-b")]}])
    said = lab.path("said")
    with open(said, "w") as out:
        program = subprocess.Popen([PROGRAM, f"127.0.0.1:{server.port}", "vol"], stdin=subprocess.PIPE, stdout=out, text=True)
    lab.cleanups.append(program.kill)

    def lines():
        with open(said) as text:
            return text.read().splitlines()

    def write(word="now"):
        program.stdin.write(word + "\n")
        program.stdin.flush()

    wait_until("it is open", lambda: lines() == ["open 0"])
    write()
    wait_until("it has written", lambda: "written 0" in lines() and "known 0" in lines())

    server.ctl("exports", "evict", "vol", "host-a", "--for", "1h")
    before = len(lines())
    write()  # held
    other = lab.client(server, {"vol": {}}, session="host-b")
    h = connected(lab, "vol")
    h.pwrite(b"n" * 4096, 0)
    h.shutdown()
    other.ctl("unmap", "vol", ok=False)
    server.ctl("exports", "evict", "vol", "host-a", "--for", "0")
    stale = f"{-errno.ESTALE}"
    wait_until("it is told", lambda: f"not open {stale}" in lines())
    wait_until("what it held has failed", lambda: {f"written {stale}", f"known {stale}"} <= set(lines()[before:]))
    before = len(lines())
    write()
    wait_until("so does what comes", lambda: sorted(lines()[before:]) == [f"known {stale}", f"written {stale}"])
    write("wait")
    wait_until("no wait is for what cannot come", lambda: lines()[-1] == f"waited {stale}")
    program.stdin.close()
    check(program.wait(timeout=60) == 0, "it ends")
