"""With the deepest queue that can be configured, as many requests are in flight, and no path is lost over it."""
from harness import *
from nbd_clients import *

CLIENTS, EACH, BLOCK = 40, 800, 4096
patient = {"heartbeat": {"interval": "10s", "timeout": "120s"}, "request_deadline": "10min"}

with Lab() as lab:
    gate = lab.path("gate")
    server = lab.server(
        [{"name": "vol", "allow": [{"session": "host-a", "access": "rw"}],
          "storage": {"kind": "delay", "of": {"kind": "memory", "size": "256MiB"},
                      "gate": gate, "gate_operations": "all"}}],
        queue_depth=32768, max_io_size="4KiB", heartbeat=patient["heartbeat"])
    # 32000 requests that end in one turn keep a busy machine's server silent for a while.
    client = lab.client(server, {"vol": {}}, session_options=patient)
    with open(gate, "w"):
        pass
    data = nbd.Buffer.from_bytearray(bytearray(b"x" * BLOCK))
    handles, failed = [], []

    def completed(error):
        if error.value:
            failed.append(error.value)
        return 1

    for number in range(CLIENTS):
        h = connected(lab, "vol")
        for i in range(EACH):
            h.aio_pwrite(data, (number * EACH + i) * BLOCK, completed)
        handles.append(h)

    def turn():
        for h in handles:
            while h.aio_in_flight() and h.poll(0):
                pass

    def all_there():
        turn()
        return server.status()["sessions"][0]["in_flight"] == CLIENTS * EACH

    wait_until("all requests are at the storage", all_there)
    os.unlink(gate)
    wait_until("all are answered", lambda: turn() or not any(h.aio_in_flight() for h in handles))
    check(not failed, f"no error: {failed[:5]}")
    path = client.status()["sessions"][0]["paths"][0]
    check(path["state"] == "connected" and path["reconnects"] == 0, f"no path was lost: {path}")
