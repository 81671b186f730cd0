"""A machine under systemd: our units, a file system mounted at boot, and reboots.

Its server is on this side, so that it can die while the machine goes down.

    RNBD_VM=1 RNBD_BUILD=build-release python3 tests/vm/system.py [units|reboots [UP [DEAD]]]

UP, DEAD: how many reboots with the server there, and with it dead.
"""

import os
import re
import sys

from host import *

# rnbd-client-down.service lets I/O fail after 20 s, then rnbd-client has its TimeoutStopSec of 30 s.
STOP_DEADLINE_S = 20 + 30
# Everything else that systemd stops, in an emulated machine beside other work. All in all less than
# the 120 s (x-systemd.mount-timeout) after which the unmounting would be given up for the first time.
ALLOWANCE_S = 60


def system(lab, arguments, client, server=None, on_line=None):
    """One life of the machine. How many seconds it took to go down."""
    installed = lab.path("installed")
    if not os.path.exists(installed):
        run("cmake", "--install", BUILD, env=dict(os.environ, DESTDIR=installed))
    words = [f"{HERE}/system_guest", "prepare", installed]
    for name, document in (("client", client), ("server", server)):
        if document:
            with open(lab.path(f"{name}.guest.yaml"), "w") as out:
                json.dump(document, out)
            words.append(lab.path(f"{name}.guest.yaml"))
    prepare = lab.path("prepare")
    with open(prepare, "w") as out:
        out.write("exec " + " ".join(words) + "\n")
    # One processor: an emulated kernel that changes its own code (static branches) while another
    # processor runs it has panicked at boot.
    said = guest(lab, ["-c", "1", "-m", "1024", "-t", "900", "-s", prepare], [f"{HERE}/system_guest", *arguments],
                 on_line)
    return int(re.search(r"vm: down in (\d+) s", said).group(1))


def units(lab):
    """Both daemons as systemd's services on one machine."""
    system(lab, ["units"],
           client={"sessions": [{"name": "guest", "paths": [{"tcp": "127.0.0.1:1235"}]}],
                   "devices": [{"name": "data", "session": "guest", "volume": "data", "access": "rw",
                                "nbd": "unix:/run/rnbd/data.sock"}]},
           server={"listen": [{"tcp": "127.0.0.1:1235"}],
                   "exports": [{"name": "data", "path": "/srv/rnbd/volume", "size": "16MiB",
                                "allow": [{"session": "guest", "access": "rw"}]}]})


def reboots(lab, up, dead):
    image = lab.path("image")
    run("truncate", "-s", "64M", image)
    run("mkfs.ext4", "-q", image)
    server = lab.server([export("data", image, session="guest")])
    client = {"sessions": [{"name": "guest", "paths": [{"tcp": f"10.0.2.2:{server.port}"}]}],
              "devices": [{"name": "data", "session": "guest", "volume": "data", "access": "rw",
                           "device": "auto"}]}
    # Alternating while both are left: what a dead server left behind is seen by a boot that is well.
    lives = [kind for pair in zip(["up"] * up, ["dead"] * dead) for kind in pair]
    lives += ["up"] * (up - dead) + ["dead"] * (dead - up)
    before, longest = "none", {"up": 0, "dead": 0}
    for number, kind in enumerate(lives, 1):
        def on_line(line):
            if "the server may go" in line:
                server.kill()
        down = system(lab, ["boot", kind, before], client, on_line=on_line)
        longest[kind] = max(longest[kind], down)
        print(f"reboot {number} of {len(lives)}, server {kind}: down in {down} s", flush=True)
        check(down <= STOP_DEADLINE_S + ALLOWANCE_S, f"going down took {down} s")
        if kind == "dead":
            server.start()
        before = "all" if kind == "up" else "synced"
    check(server.running(), "the server is there")
    server.stop()
    # What is left may want its journal replayed, no more.
    run("e2fsck", "-p", image, ok=False)
    run("e2fsck", "-fn", image)
    print(f"{up} reboots with the server up, the longest {longest['up']} s; "
          f"{dead} with it dead, {longest['dead']} s")


def main():
    need_root()
    need("qemu-system-x86_64", "mkfs.ext4", "e2fsck", "nbdinfo", "cmake")
    if not os.path.exists("/lib/systemd/systemd"):
        skip("systemd is not installed")
    what = sys.argv[1:] or ["units", "reboots"]
    with Lab() as lab:
        if "units" in what:
            units(lab)
        if "reboots" in what:
            counts = [int(word) for word in what if word.isdigit()] or [1, 1]
            reboots(lab, counts[0], counts[1] if len(counts) > 1 else counts[0])


main()
