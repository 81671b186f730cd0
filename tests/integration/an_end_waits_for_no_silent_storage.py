"""A device is unmapped, and rnbd-client ends, though its server lives and does not answer what they wait for."""
from harness import *
from nbd_clients import *

BLOCK = b"n" * 4096


def begin(lab):
    """A device whose storage answers nothing once the gate is there, with a block that is flushed."""
    gate = lab.path("gate")
    server = lab.server([{"name": "vol", "allow": [{"session": "host-a", "access": "rw"}],
                          "storage": {"kind": "delay", "gate": gate, "gate_operations": "all",
                                      "of": {"kind": "memory", "size": "1MiB"}}}])
    client = lab.client(server, {"vol": {}})
    handle = connected(lab, "vol")
    handle.pwrite(BLOCK, 0)
    handle.flush()
    return gate, client, handle


with Lab() as lab:
    gate, client, handle = begin(lab)
    open(gate, "w").close()
    handle.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(BLOCK)), 4096)
    wait_until("it is with the server", lambda: client.status()["sessions"][0]["in_flight"] == 1)
    client.ctl("unmap", "vol", "--force")
    check("cut off" in client.log(), "the log says what was done")
    # The server closes what a lost connection had open, so that the session has it again.
    os.unlink(gate)
    client.ctl("map", "vol", "--session", "host-a", "--nbd", "unix:" + lab.socket("client", "vol"))
    wait_until("it is open", lambda: client.status()["devices"][0]["state"] == "open")
    again = connected(lab, "vol")
    check(bytes(again.pread(len(BLOCK), 0)) == BLOCK, "what was flushed is there")
    again.pwrite(BLOCK, 4096)
    again.flush()

with Lab() as lab:
    gate, client, handle = begin(lab)
    handle.shutdown()
    open(gate, "w").close()
    client.process.terminate()  # its own last flush is not answered
    client.process.wait(PATIENCE_S)
    check("cut off" in client.log(), "the log says what was done")
    os.unlink(gate)
