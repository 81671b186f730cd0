"""Of listeners that share an address with port 0, as many go as the configuration has fewer, and none else."""
from configurations import *
from harness import *


def listening(server):
    return [one["address"] for one in server.status()["listen"]]


with Lab() as lab:
    exports = [export("vol1", lab.path("vol1.img"), "1MiB")]
    server = lab.server(exports)
    fixed = f"127.0.0.1:{server.port}"

    def is_as_written(with_port_0, *others):
        check(len(listening(server)) == with_port_0 + len(others) and set(others) <= set(listening(server)),
              f"expected {with_port_0} with port 0, {others}: {listening(server)}")
        check(config(server, "diff")[0]["state"] == "same", "nothing is left to do")

    def write(with_port_0, *others):
        write_config(server, {"exports": exports, "listen": [
            {"tcp": one} for one in ["127.0.0.1:0"] * with_port_0 + list(others)]})

    write(3, fixed)
    config(server, "apply")
    is_as_written(3, fixed)
    first = next(one for one in listening(server) if one != fixed)
    write(1, fixed)
    config(server, "apply")
    is_as_written(1, fixed)
    check(first in listening(server), f"the first one stays: {listening(server)}")
    write(2, fixed)
    config(server, "apply")
    write(0, fixed)
    reload(server)
    is_as_written(0, fixed)
    write(2)
    config(server, "apply")
    is_as_written(2)
