"""Exports that take all descriptors they can get leave the server's last ones to rnbdctl and to lost paths: those
beyond wait with a reason, nothing is made for them, and they are there when others have gone."""
from harness import *
from nbd_clients import *

LIMIT = 128
EXPORTS = 100
need("prlimit", "setpriv")
nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []

with Lab() as lab:
    os.chmod(lab.folder, 0o777)
    # Root would raise the limit.
    server = lab.server([export("first", lab.path("first.img"), "1MiB")],
                        prefix=[*nobody, "prlimit", f"--nofile={LIMIT}:{LIMIT}"])
    client = lab.client(server, {"first": {}})
    handle = connected(lab, "first")
    exports = lambda: {one["name"]: one for one in server.status()["exports"]}
    image = lambda i: lab.path(f"{i}.img")

    def configure(numbers):
        server.config_with(lambda config: config.update(
            exports=config["exports"][:1] + [export(f"e{i}", image(i), "1MiB") for i in numbers]))

    def waiting():
        return {name: one["reason"] for name, one in exports().items() if one["state"] == "waiting"}

    configure(range(EXPORTS))
    server.ctl("config", "apply")
    # What is being opened has room for a moment longer than it needs, and others wait for that.
    wait_until("all have been opened, or wait with the reason", lambda: all(
        why == f"{image(name[1:])}: hardly any descriptors left (ulimit -n)" for name, why in waiting().items()))
    check(20 < len(waiting()) < EXPORTS - 20, f"{len(waiting())} wait")
    wait_until("nothing is made for those that wait", lambda: not any(
        os.path.exists(image(name[1:])) for name in waiting()))
    in_use = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    check(in_use <= LIMIT - LIMIT // 16, f"{in_use} of {LIMIT} descriptors are used")

    path = f"127.0.0.1:{server.port}"
    client.ctl("paths", "disconnect", "host-a", path)
    wait_until("it is lost", lambda: server.status()["sessions"] == [])
    client.ctl("paths", "reconnect", "host-a", path)
    wait_until("the device is open", lambda: client.status()["devices"][0]["state"] == "open")
    handle.pwrite(b"x" * 4096, 0)
    handle.flush()

    configure(range(EXPORTS - 20, EXPORTS))
    server.process.send_signal(signal.SIGHUP)
    wait_until("those that waited are there", lambda: len(exports()) == 21 and all(
        one["state"] == "ready" for one in exports().values()))
    handle.pwrite(b"y" * 4096, 0)
    handle.shutdown()
    client.stop()
    server.stop()
