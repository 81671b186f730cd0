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


def state(client):
    return client.status()["devices"][0]["state"]


def noticed(server, client):
    """The server has lost its cache, this life of the client knows, and no flush has said so."""
    server.kill()
    wait_until("the client has seen it go", lambda: state(client) != "open")
    server.start()
    wait_until("it is open again", lambda: state(client) == "open")
    check(client.status()["devices"][0]["lost_caches"] == 1, "the loss is known")


def came_back(lab, server, client):
    if server is not None:
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

# A loss that was noticed, but not told, outlives the client that noticed it.
for end_client in (Daemon.stop, Daemon.kill):
    with Lab() as lab:
        server, client, handle = begin(lab)
        noticed(server, client)
        end_client(client)
        for again in range(2):  # nor is it told by starting
            handle = came_back(lab, None, client)
            if again == 0:
                end_client(client)
        check(error_of(handle.flush) == errno.EIO, "the next life's flush says so")
        check("not all who use it have heard of that" in client.log(), "the log, too")
        handle.flush()  # once
        end_client(client)
        came_back(lab, None, client).flush()  # and not in the life after that

# What was acknowledged since, and not flushed, is kept apart from that.
with Lab() as lab:
    server, client, handle = begin(lab)
    noticed(server, client)
    handle.pwrite(BLOCK, 4096)
    client.kill()
    handle = came_back(lab, None, client)
    check(error_of(handle.flush) == errno.EIO, "what was lost before is told")
    server.kill()
    wait_until("the client has seen it go", lambda: state(client) != "open")
    client.kill()
    check(error_of(came_back(lab, server, client).flush) == errno.EIO, "and what was lost now")

# Each client hears of it, also if another one did in the life before; and that is all.
for end_client in (Daemon.stop, Daemon.kill):
    with Lab() as lab:
        server, client, handle = begin(lab)
        other = connected(lab, "vol")
        other.pwrite(BLOCK, 4096)
        noticed(server, client)
        check(error_of(other.flush) == errno.EIO, "one of two hears of it")
        end_client(client)
        handle = came_back(lab, None, client)
        never_flushes = connected(lab, "vol")
        check(error_of(handle.flush) == errno.EIO, "the other one in the next life")
        handle.flush()  # once; behind it that is noted
        end_client(client)
        came_back(lab, None, client).flush()

# Who takes it from them by force hears of it.
with Lab() as lab:
    server, client, handle = begin(lab)
    other = connected(lab, "vol")
    noticed(server, client)
    check(error_of(other.flush) == errno.EIO, "one of two hears of it")
    said = client.ctl("unmap", "vol", "--force", ok=False)
    check(said.returncode != 0 and "not every client was told" in said.stderr, said.stderr)

# It is for who writes: a life that only reads keeps it.
for unmapped in (False, True):
    with Lab() as lab:
        server, client, handle = begin(lab)
        noticed(server, client)
        client.stop()
        client.config_with(lambda config: config["devices"][0].update(access="ro"))
        handle = came_back(lab, None, client)
        if unmapped:
            said = client.ctl("unmap", "vol", "--force", ok=False)
            check(said.returncode != 0 and "no client was told" in said.stderr, said.stderr)
            continue
        client.stop()
        client.config_with(lambda config: config["devices"][0].update(access="rw"))
        check(error_of(came_back(lab, None, client).flush) == errno.EIO, "the next that writes is told")

# An unmap says it, whether the volume is open or not.
for away in (False, True):
    with Lab() as lab:
        server, client, handle = begin(lab)
        noticed(server, client)
        handle = None  # its socket is closed
        wait_until("nobody is connected", lambda: client.status()["devices"][0]["connections"] == 0)
        if away:
            server.kill()
            wait_until("the client has seen it go", lambda: state(client) != "open")
        unmapped = client.ctl("unmap", "vol", ok=False)
        check(unmapped.returncode != 0 and "no client was told" in unmapped.stderr, unmapped.stderr)
