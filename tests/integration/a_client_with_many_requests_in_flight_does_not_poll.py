"""rnbd-client polls before it sleeps while few requests are in flight, and not while there are more than it says."""
import openmetrics
from harness import *
from nbd_clients import *

POLLED_MAX = 8

with Lab() as lab:
    gate = lab.path("gate")
    with open(gate, "w"):
        pass
    server = lab.server([{"name": "vol", "allow": [{"session": "host-a", "access": "rw"}],
                          "storage": {"kind": "delay", "gate": gate, "of": {"kind": "memory", "size": "1MiB"}}}])
    listener = lab.path("metrics.sock")
    client = lab.client(server, {"vol": {}}, metrics={"listen": f"unix:{listener}"}, busy_poll="1ms")
    handle = connected(lab, "vol")
    held = []

    def looks():
        return openmetrics.scrape(listener)["rnbd_reactor_looks"].total("_total")

    def hold(requests):
        """So many writes are in flight; the gate keeps them."""
        while len(held) < requests:
            held.append(handle.aio_pwrite(bytearray(512), 512 * len(held)))
        wait_until(f"{requests} are in flight", lambda: client.status()["sessions"][0]["in_flight"] == requests)

    def look_while(what, requests):
        hold(requests)
        before = looks()
        # Each question is news, after which the client waits again. It may poll for a thousandth of the time at least.
        wait_until(f"it polls {what}", lambda: looks() > before)

    try:
        look_while("with one", 1)
        look_while("with as many as it may", POLLED_MAX)
        hold(POLLED_MAX + 1)
        before = looks()
        asked_until = time.monotonic() + 3
        while time.monotonic() < asked_until:
            check(looks() == before, f"with {POLLED_MAX + 1} in flight: {before} looks, and now {looks()}")
            time.sleep(0.05)
    finally:
        os.unlink(gate)  # or the server would not end
    for cookie in held:
        while not handle.aio_command_completed(cookie):
            handle.poll(-1)
    before = looks()
    wait_until("it polls again", lambda: looks() > before)
    handle.shutdown()
