"""What the server could not write back is lost, and its clients hear of it also after it was restarted."""
import errno
import re

from harness import *
from nbd_clients import *

need("losetup")
need_root()


def wait_for(client, word):
    wait_until(f"the device is {word}", lambda: client.status()["devices"][0]["state"] == word)


def exported(server):
    return server.status()["exports"][0]


def flushes_fail():
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(lab.path("metrics"))
        asked.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        page = b"".join(iter(lambda: asked.recv(65536), b"")).decode()
    return int(re.search(r"^rnbd_server_export_flushes_fail\{.*\} (\d)$", page, re.M)[1])


with Lab() as lab, small_tmpfs(lab, "small", "4m") as small:
    # A device that takes writes and cannot write them back: its file has no room to grow.
    with open(os.path.join(small, "disk"), "wb") as out:
        out.truncate(8 << 20)
    made = run("losetup", "--find", "--show", os.path.join(small, "disk"), ok=False)
    if made.returncode != 0:
        skip("no loop devices here")
    disk = made.stdout.strip()
    lab.cleanups.append(lambda: run("losetup", "--detach", disk, ok=False))
    with open(os.path.join(small, "filler"), "wb", buffering=0) as out:
        try:
            while out.write(bytes(65536)):
                pass
        except OSError as full:
            check(full.errno == errno.ENOSPC, "it is full")
    os.mkdir(lab.path("state"))
    server = lab.server([export("vol", disk)], prefix=["env", f"STATE_DIRECTORY={lab.path('state')}"],
                        metrics={"listen": f"unix:{lab.path('metrics')}"})
    client = lab.client(server, {"vol": {}})

    for end in (server.stop, server.kill):
        h = connected(lab, "vol")
        h.pwrite(b"x" * 65536, 0)
        if end == server.kill:
            # Told to somebody who is gone when the next one asks.
            check(error_of(h.flush) == errno.EIO, "the flush fails")
            check(error_of(h.flush) == errno.EIO, "and all that follow")
            check("flushes fail until it is opened again" in exported(server)["reason"], "the status says why")
            check(flushes_fail() == 1, "a metric, too")
        end()
        wait_for(client, "reopening")
        server.start()
        wait_for(client, "open")
        check(exported(server)["reason"] == "" and flushes_fail() == 0, "that is over")
        check(error_of(h.flush) == errno.EIO, "the flush after the restart fails")
        check(error_of(h.flush) == 0, "once")
        check("acknowledged writes cannot be written back" in server.log(), "the log says so")
    check(client.status()["devices"][0]["lost_caches"] == 2, "counted")
