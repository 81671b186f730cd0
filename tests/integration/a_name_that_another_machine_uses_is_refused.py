"""A second machine cannot take a session's name away: it is told that it is in use, and has it when the first has gone."""
from harness import *
from nbd_clients import *

# Who a client is: /etc/machine-id and the name of the host.
ANOTHER_MACHINE = ["unshare", "--uts", "sh", "-c", 'hostname rnbd-other && exec "$@"', "sh"]

with Lab() as lab:
    server = lab.server([export(name, lab.path(name), "1MiB") for name in ("vol1", "vol2")], host="0.0.0.0")
    client = lab.client(server, {"vol1": {}})
    h = nbd.NBD()
    h.connect_uri(lab.uri("vol1"))
    h.pwrite(b"a" * 4096, 0)

    # By another address, since two clients of one machine do not get so far.
    other = Daemon(lab, "rnbd-client", "other", {
        "sessions": [{"name": "host-a", "paths": [{"tcp": f"127.0.0.2:{server.port}"}], "reconnect_delay": {"max": "100ms"}}],
        "devices": [{"name": "vol2", "session": "host-a", "volume": "vol2", "access": "rw",
                     "nbd": f"unix:{lab.socket('other', 'vol2')}"}]}, prefix=ANOTHER_MACHINE)
    lab.daemons.append(other)
    other.start()

    def path():
        return other.status()["sessions"][0]["paths"][0]

    wait_until("the second is told", lambda: "in use by another client" in path()["reason"])
    wait_until("it is tried again", lambda: path()["reconnects_failed"] >= 3)
    listed = other.ctl("list").stdout
    check("opening" in listed and "in use by another client" in listed, listed)
    check("host-a is in use by another client at 127.0.0.1" in server.log(), server.log())
    first = client.status()["sessions"][0]
    check(first["state"] == "connected" and first["paths"][0]["reconnects"] == 0, first)
    check(h.pread(4096, 0) == b"a" * 4096, "the first serves")
    h.flush()
    h.shutdown()

    check(client.stop() == 0, "the first has gone")
    wait_until("the second has the name", lambda: other.status()["devices"][0]["state"] == "open")
    check(path()["reason"] == "", path())
