"""A daemon that finds an address taken says which one, ends, and leaves no file behind, of a socket or an export."""

import os
import socket
import stat

from harness import Daemon, Lab, check, export

SIZE = 16 << 20


def fails(daemon, address):
    daemon.start(wait=False)
    status = daemon.process.wait(timeout=60)
    check(status == 1, f"it ends: {status}, {daemon.log()}")
    check(address in daemon.log(), f"{address} is named: {daemon.log()}")


def sockets(lab):
    return sorted(name for name in os.listdir(lab.path("")) if stat.S_ISSOCK(os.stat(lab.path(name)).st_mode))


with Lab() as lab, socket.create_server(("127.0.0.1", 0)) as other:
    taken = f"127.0.0.1:{other.getsockname()[1]}"
    metrics = {"listen": f"unix:{lab.path('metrics.sock')}"}
    fails(Daemon(lab, "rnbd-server", "server", {"listen": [{"tcp": taken}], "metrics": metrics,
                                                "exports": [export("none", lab.path("none"), SIZE)]}), taken)
    check(sockets(lab) == [], f"nothing is left: {sockets(lab)}")
    check(not os.path.exists(lab.path("none")), "an export's file was made by a server that does not serve")

    running = lab.server([export(name, lab.path(name), SIZE) for name in ("one", "two")], name="running")
    before = sockets(lab)
    # Of the first nothing is wrong.
    devices = [{"name": name, "session": "host-a", "volume": name, "access": "ro",
                "nbd": [f"unix:{lab.path('shared.sock')}", f"unix:{lab.path(name + '.sock')}", *more]}
               for name, more in (("one", []), ("two", [f"tcp:{taken}"]))]
    fails(Daemon(lab, "rnbd-client", "client", {
        "sessions": [{"name": "host-a", "paths": [{"tcp": f"127.0.0.1:{running.port}"}]}], "devices": devices,
        "metrics": metrics}), taken)
    check(sockets(lab) == before, f"nothing is left: {sockets(lab)}, before {before}")

    # What is no socket stays what it is.
    with open(lab.path("metrics.sock"), "w") as file:
        file.write("content")
    fails(Daemon(lab, "rnbd-server", "file", {"listen": [{"tcp": "127.0.0.1:0"}], "metrics": metrics, "exports": []}),
          "metrics.sock: found something that is no socket")
    with open(lab.path("metrics.sock")) as file:
        check(file.read() == "content", "the file is as it was")
