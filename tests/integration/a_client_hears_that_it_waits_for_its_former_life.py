"""A client is killed while the storage holds its write, and comes back: until that has ended the server does not let it in, and it says so."""
import threading

from harness import *
from nbd_clients import *

with Lab() as lab:
    gate = lab.path("gate")
    server = lab.server([{"name": "vol1", "allow": [{"session": "host-a", "access": "rw"}], "storage": {
        "kind": "delay", "gate": gate, "gate_operations": "write", "of": {"kind": "memory", "size": "1MiB"}}}])
    client = lab.client(server, {"vol1": {}})
    h = nbd.NBD()
    h.connect_uri(lab.uri("vol1"))
    open(gate, "w").close()

    def write():
        try:
            h.pwrite(b"a" * 4096, 0)
        except nbd.Error:
            pass  # its client was killed

    writer = threading.Thread(target=write)
    writer.start()
    wait_until("the write stands", lambda: server.status()["sessions"][0]["in_flight"] == 1)
    client.kill()
    writer.join()
    client.start()

    reason = "the server waits for what this client's former session has in flight"
    wait_until("it is told", lambda: reason in client.status()["devices"][0]["reason"])
    wait_until("it is tried again", lambda: client.status()["sessions"][0]["paths"][0]["reconnects_failed"] >= 4)
    check(reason in client.ctl("list").stdout, client.ctl("list").stdout)
    former = server.status()["sessions"][0]
    check(former["state"] == "closing" and former["in_flight"] == 1, former)
    check(server.log().count("takes the session name host-a over") == 1, server.log())
    os.unlink(gate)
    wait_until("it is let in", lambda: client.status()["devices"][0]["state"] == "open")
    check(server.status()["sessions"][0]["state"] == "connected", server.status()["sessions"])
