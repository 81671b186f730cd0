"""What makes the server fast has switches that turn it off, and data is the same without it."""

import os
import re
import tempfile

import openmetrics
from harness import Lab, check, export, need, run, same

SIZE = 16 << 20
READ = SIZE    # the client cuts it into requests that travel together
PORTION = 1 << 20
ROUNDS = 4
ROUNDS_MAX = 200

need("nbdsh", "nbdcopy")


def registered(daemon):
    """{"UserFiles" or "UserBufs": slots of the kernel's table} of all rings; None if this kernel does not tell."""
    found = {}
    folder = f"/proc/{daemon.process.pid}"
    for name in os.listdir(f"{folder}/fd"):
        if "io_uring" not in os.readlink(f"{folder}/fd/{name}"):
            continue
        with open(f"{folder}/fdinfo/{name}") as info:
            for kind, slots in re.findall(r"^(UserFiles|UserBufs):\s*(\d+)$", info.read(), re.MULTILINE):
                found[kind] = found.get(kind, 0) + int(slots)
    return found or None


def turns(daemon):
    return sum(worker["turns"] for worker in daemon.status()["workers"])


def family_of(name, listener):
    """What a daemon's metrics tell."""
    return openmetrics.scrape(listener)[name]


def counted(name, listener):
    return family_of(name, listener).total("_total")


def called(listener):
    calls = family_of("rnbd_server_prompt_storage", listener)
    return {kind: calls.value("_total", call=kind) for kind in ("submit", "read", "write")}


with Lab() as lab:
    METRICS = lab.path("metrics.sock")
    image = lab.random_file("image", SIZE)
    for number, switches in enumerate(({}, {"registered_io": False}, {"read_portions": False},
                                       {"prompt_sends": False}, {"batch_scheduling": False},
                                       {"prompt_storage": False}, {"zero_copy_sends": True},
                                       {"zero_copy_sends": True, "workers": 2},
                                       {"registered_io": False, "read_portions": False, "workers": 2})):
        backing = lab.path(f"vol{number}")
        server = lab.server([export("vol", backing, SIZE)], name=f"server{number}",
                            metrics={"listen": f"unix:{METRICS}"}, **switches)
        client = lab.client(server, {"vol": {}}, name=f"client{number}")
        uri = lab.uri("vol", f"client{number}")
        run("nbdcopy", "--flush", image, uri)
        check(same(image, backing), f"{switches}: it is written")
        run("nbdcopy", uri, lab.path("copy"))
        check(same(image, lab.path("copy")), f"{switches}: and read")
        run("nbdsh", "-u", uri, "-c", "h.pread(4096, 0)")  # large ones want no pinned memory

        slots = registered(server)
        if slots is None:
            print("NOT CHECKED: registered_io, since this kernel does not tell what is registered")
        elif switches.get("registered_io", True):
            check(slots["UserFiles"] > 0 and slots["UserBufs"] > 0, f"{switches}: both are registered: {slots}")
        else:
            check(not any(slots.values()), f"{switches}: nothing is registered: {slots}")

        sends = counted("rnbd_reactor_prompt_sends", METRICS)
        if switches.get("prompt_sends", True) and switches.get("workers", 1) == 1:
            check(sends > 0, f"{switches}: sends left at once: {sends}")
        else:
            check(sends == 0, f"{switches}: none did: {sends}")

        if not switches.get("batch_scheduling", True):
            check(os.sched_getscheduler(server.process.pid) == os.SCHED_OTHER, f"{switches}: it is scheduled as usual")

        copies = {stage: family_of("rnbd_server_zero_copy_sends", METRICS).value("_total", stage=stage)
                  for stage in ("begun", "copied")}
        if switches.get("zero_copy_sends", False):
            # To a client on this machine the kernel copies: few are tried, until it reports that.
            check(0 < copies["begun"] <= 64, f"{switches}: sends without a copy were begun: {copies}")
            if copies["copied"] == 0:
                print("NOT CHECKED: what the kernel copied all the same, since it does not tell")
        else:
            check(not any(copies.values()), f"{switches}: none were: {copies}")

        # Two workers have turns enough otherwise.
        at_once = not switches.get("read_portions", True) and switches.get("workers", 1) == 1
        took = []
        # On a busy machine the client's requests come one by one, and so do the turns.
        while len(took) < ROUNDS or (at_once and min(took) >= READ // PORTION and len(took) < ROUNDS_MAX):
            before = turns(server)
            run("nbdsh", "-u", uri, "-c", f"h.pread({READ}, 0)")
            took.append(turns(server) - before)
        if at_once:
            check(min(took) < READ // PORTION, f"{switches}: more than a portion in a turn: {took}")
        elif switches.get("read_portions", True):
            check(min(took) >= READ // PORTION, f"{switches}: a portion in a turn: {took}")
        client.stop()
        server.stop()

    # Storage that is given its requests inside a turn: a disk in groups, a file in memory one by one.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        exports = [export("disk", lab.path("direct"), SIZE, io="direct", block_size=4096),
                   export("memory", f"{memory}/vol", SIZE)]
        with open("/proc/swaps") as swaps:
            swapless = len(swaps.readlines()) == 1
        for number, switches in enumerate(({}, {"prompt_storage": False}, {"workers": 2}, {"polled_io": True})):
            server = lab.server(exports, name=f"storing{number}", metrics={"listen": f"unix:{METRICS}"}, **switches)
            client = lab.client(server, {"disk": {}, "memory": {}}, name=f"storer{number}")
            for name, path in (("disk", lab.path("direct")), ("memory", f"{memory}/vol")):
                uri = lab.uri(name, f"storer{number}")
                run("nbdcopy", "--flush", "--request-size", "4096", image, uri)
                check(same(image, path), f"{switches}: {name}: it is written")
                run("nbdcopy", "--request-size", "4096", uri, lab.path("copy"))
                check(same(image, lab.path("copy")), f"{switches}: {name}: and read")
            calls = called(METRICS)
            if {"prompt_storage", "workers"} & set(switches):
                check(not any(calls.values()), f"{switches}: nothing is called inside a turn: {calls}")
            else:
                # What is polled for takes another way, where the disk can be.
                check(calls["submit"] + counted("rnbd_server_polled_io", METRICS) > 0, f"the disk is given groups: {calls}")
                # Without swap: each read and write, and nothing else.
                all_of_it = SIZE // 4096 if swapless else 0
                check(calls["write"] == calls["read"] == all_of_it, f"the file in memory is called: {calls}")
            client.stop()
            server.stop()

    # Looking before sleeping, which both sides do unless told.
    for number, switches in enumerate(({}, {"busy_poll": "0us"})):
        server = lab.server([export("vol", lab.path("vol0"), SIZE)], name=f"asked{number}",
                            metrics={"listen": f"unix:{METRICS}"}, **switches)
        listener = lab.path(f"metrics{number}.sock")
        client = lab.client(server, {"vol": {}}, name=f"looking{number}", metrics={"listen": f"unix:{listener}"}, **switches)
        run("nbdsh", "-u", lab.uri("vol", f"looking{number}"), "-c",
            "for i in range(200): h.pwrite(h.pread(4096, i * 4096), i * 4096)")
        check(same(image, lab.path("vol0")), f"{switches}: what is written back is the same")
        looks = counted("rnbd_reactor_looks", listener)
        check((looks > 0) == (not switches), f"{switches}: looks of the client: {looks}")
        looks = counted("rnbd_reactor_looks", METRICS)
        check((looks > 0) == (not switches), f"{switches}: looks of the server: {looks}")
        client.stop()
        server.stop()
