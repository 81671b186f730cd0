"""In a terminal the lines of rnbdctl's tables are as long as it is wide, at most; a pipe gets every column."""
import fcntl
import pty
import re
import struct
import termios

from harness import *


def in_terminal(columns, daemon, *words):
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([os.path.join(BUILD, "rnbdctl", "rnbdctl"), "--socket", daemon.control, *words],
                               stdout=its, stderr=subprocess.PIPE, env=dict(os.environ, NO_COLOR="1"))
    os.close(its)
    text = b""
    with contextlib.suppress(OSError):  # its end
        while part := os.read(ours, 65536):
            text += part
    os.close(ours)
    check(process.wait(timeout=PATIENCE_S) == 0, process.stderr.read())
    return text.decode().splitlines()


def titles(line):
    return re.split("  +", line)


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    client = lab.client(server, {"vol1": {}})
    whole = client.ctl("paths").stdout.splitlines()
    check(len(whole) == 2 and len(whole[0]) > 160 and "STALE" in whole[0], whole)
    check(titles(in_terminal(240, client, "paths")[0]) == titles(whole[0]), "there is room for all")
    for columns in (120, 100, 80):
        lines = in_terminal(columns, client, "paths")
        check(len(lines) == 3 and all(len(line) <= columns for line in lines[:2]), f"{columns}: {lines}")
        check(all(title in lines[0] for title in ("PATH", "STATE", "NEXT", "REASON")), lines)
        check("no room here for" in lines[2] and "STALE" in lines[2] and "STALE" not in lines[0], lines)
    # One that does not say how wide it is.
    check(titles(in_terminal(0, client, "paths")[0]) == titles(whole[0]), "all of it")
    check("| cat" in "".join(in_terminal(40, server, "status")), "that of a server")
