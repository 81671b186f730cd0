"""A session whose name another program of the machine has taken stays ended, whatever it is told, until its devices are unmapped and mapped anew:
then it has its name back. A question under its name takes nothing over."""
from configurations import *
from harness import *
from nbd_clients import *

with Lab() as lab:
    exports = [export(name, lab.path(name), "1MiB") for name in ("vol1", "vol2")]
    server = lab.server(exports, host="0.0.0.0")
    client = lab.client(server, {"vol1": {}})
    # Another address of the same server: nobody on this machine can know that it is the same.
    elsewhere = f"127.0.0.2:{server.port}"
    other = Daemon(lab, "rnbd-client", "other", {"devices": [], "sessions": []})
    lab.daemons.append(other)
    other.start()

    def device():
        return client.status()["devices"][0]

    def session():
        return client.status()["sessions"][0]

    asked = other.ctl("--timeout", "1", "discover", elsewhere, "--session", "host-a", ok=False)
    check(asked.returncode == 7, asked)
    check(device()["state"] == "open" and session()["paths"][0]["reconnects"] == 0, "nothing was taken over")

    other.ctl("map", "vol2", "from", "host-a", "--path", elsewhere)
    wait_until("it is taken over", lambda: "taken over" in device()["reason"])
    wait_until("the other one has it", lambda: other.status()["devices"][0]["state"] == "open")
    for words in (("paths", "reconnect", "host-a", f"127.0.0.1:{server.port}"), ("paths", "add", "host-a", f"127.0.0.3:{server.port}")):
        ended = client.ctl(*words, ok=False)
        check(ended.returncode == 1 and "has ended" in ended.stderr, ended)
    busy = client.ctl("map", "vol2", "from", "host-a", ok=False)
    check(busy.returncode == 5 and "unmap its device vol1 first" in busy.stderr, busy)
    check(config(client, "apply")[0]["state"] == "applied" and "taken over" in device()["reason"], "it knew the volume")
    other.ctl("unmap", "vol2")

    client.ctl("unmap", "vol1")
    client.ctl("map", "vol1", "from", "host-a")
    wait_until("it is open again", lambda: device()["state"] == "open")
    h = nbd.NBD()
    h.connect_uri(lab.control_uri("vol1"))
    h.pwrite(b"a" * 4096, 0)
    check(h.pread(4096, 0) == b"a" * 4096, "and serves")
    h.flush()
    h.shutdown()

    # By the configuration, too, and from whoever has it.
    other.ctl("map", "vol2", "from", "host-a", "--path", elsewhere)
    wait_until("it is taken over", lambda: "taken over" in device()["reason"])
    client.ctl("unmap", "vol1")
    config(client, "apply")
    wait_until("it is open again", lambda: device()["state"] == "open")
    wait_until("the other one has ended", lambda: "taken over" in other.status()["devices"][0]["reason"])
