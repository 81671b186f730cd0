"""rnbd-client that was restarted, or killed, while the server lost what it had acknowledged says so at the next flush."""
from harness import *
from nbd_clients import *

import errno

BLOCK = b"l" * 4096


def begin(lab):
    server = lab.server([{"name": "vol", "allow": [{"session": "host-a", "access": "rw"}],
                          "storage": {"kind": "memory", "size": "1MiB"}}])
    client = lab.client(server, {"vol": {}})
    handle = connected(lab, "vol")
    handle.pwrite(BLOCK, 0)  # acknowledged
    return server, client, handle


def came_back(lab, server, client):
    server.start()
    client.start()
    wait_until("it is open", lambda: client.status()["devices"][0]["state"] == "open")
    return connected(lab, "vol")


for end_client in (Daemon.stop, Daemon.kill):
    with Lab() as lab:
        server, client, handle = begin(lab)
        server.kill()
        end_client(client)
        handle = came_back(lab, server, client)
        check(error_of(handle.flush) == errno.EIO, "the write is gone, and the flush says so")
        check("of a former life" in client.log(), "the log, too")
        handle.flush()  # once

    # What was flushed, or is still in its cache, is no loss.
    with Lab() as lab:
        server, client, handle = begin(lab)
        end_client(client)
        client.start()
        wait_until("it is open", lambda: client.status()["devices"][0]["state"] == "open")
        connected(lab, "vol").flush()

with Lab() as lab:
    server, client, handle = begin(lab)
    handle.flush()
    server.kill()
    client.stop()
    came_back(lab, server, client).flush()
