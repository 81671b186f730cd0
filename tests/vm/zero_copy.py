"""A server in a guest sends large answers without a copy to a client on this machine, also over a line that loses
packets: no byte is wrong, and the guest's kernel copied nothing. Between processes of one machine it always does.

    RNBD_VM=1 RNBD_BUILD=build-release python3 tests/vm/zero_copy.py
"""

import os
import re
import sys

if sys.argv[1:2] == ["guest"]:
    from guest import *  # noqa: F403
else:
    from host import *  # noqa: F403

import openmetrics  # noqa: E402

SIZE = 16 << 20
LINES = ("whole", "lossy")


class Elsewhere:
    """A server that is reached by this machine's port."""

    def __init__(self, port):
        self.port = port


def serve(image, port):
    run("modprobe", "e1000e")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "address", "add", "10.0.2.15/24", "dev", "eth0")
    with Lab() as lab:
        run("cp", image, lab.path("volume"))
        listener = lab.path("metrics.sock")
        server = lab.server([export("data", lab.path("volume"), access="rw")], port=port, host="10.0.2.15",
                            zero_copy_sends=True, metrics={"listen": f"unix:{listener}"})
        for line in LINES:
            if line == "lossy":
                run("modprobe", "sch_netem")
                run("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "loss", "1%", "delay", "2ms")
            step(f"line: {line}")
            wait_until("the client is there", lambda: server.status()["sessions"], SLOW_S)
            wait_until("it has gone", lambda: not server.status()["sessions"], SLOW_S)
            sends = openmetrics.scrape(listener)["rnbd_server_zero_copy_sends"]
            step(f"begun {sends.value('_total', stage='begun')} copied {sends.value('_total', stage='copied')}")
        server.stop()


def main():
    need_root()
    need("qemu-system-x86_64", "nbdcopy")
    with Lab() as lab:
        image = lab.random_file("image", SIZE)
        port = free_port()
        counts = []

        def on_line(line):
            if found := re.match(r"line: (\w+)", line):
                name = found.group(1)
                client = lab.client(Elsewhere(port), {"data": {}}, name=name)
                for _ in range(2):
                    run("nbdcopy", lab.uri("data", name), lab.path("copy"))
                    check(same(image, lab.path("copy")), f"over a {name} line all is read")
                    os.unlink(lab.path("copy"))
                client.stop()
            if found := re.match(r"begun (\d+)\.0 copied (\d+)\.0", line):
                counts.append([int(number) for number in found.groups()])

        guest(lab, ["-c", "1", "-m", "1024", "-t", "600", "-p", str(port)], this_script(__file__, image, str(port)), on_line)
        check(len(counts) == len(LINES), f"both lines were counted: {counts}")
        before = 0
        for line, (begun, copied) in zip(LINES, counts):
            check(begun - before >= SIZE // (128 << 10), f"{line}: what is large leaves without a copy: {counts}")
            check(copied == 0, f"{line}: nothing is copied: {counts}")
            before = begun


if sys.argv[1:2] == ["guest"]:
    serve(sys.argv[2], int(sys.argv[3]))
else:
    main()
