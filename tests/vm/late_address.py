"""In the guest, under soft_roce: daemons that start before the address of an RDMA path is there use TCP, then both."""

from guest import *

need_root()
need("ip")
WIRE = os.environ["RNBD_RDMA_WIRE"]
# Nobody has it, until ip address add.
LATE = "10.1.8.1"

with Lab() as lab:
    server = Daemon(lab, "rnbd-server", "server", {
        "listen": [{"rdma": f"{LATE}:1235"}, {"tcp": "127.0.0.1:1235"}],
        "heartbeat": {"interval": "1s", "timeout": "10s"},
        "exports": [export("vol1", lab.path("vol1.img"), "64MiB", session="guest")]})
    client = Daemon(lab, "rnbd-client", "client", {
        "sessions": [{"name": "guest", "paths": [{"rdma": f"{LATE}@{LATE}:1235"}, {"tcp": "127.0.0.1:1235"}],
                      "heartbeat": {"interval": "1s", "timeout": "10s"}}],
        "devices": [{"name": "vol1", "volume": "vol1", "session": "guest", "access": "rw",
                     "nbd": f"unix:{lab.socket('client', 'vol1')}"}]})
    lab.daemons += [server, client]
    server.start()
    client.start()
    wait_until("the device is open", lambda: client.status()["devices"][0]["state"] == "open", SLOW_S)
    step("open over TCP")
    run("ip", "address", "add", f"{LATE}/24", "dev", WIRE)
    lab.cleanups.append(lambda: run("ip", "address", "del", f"{LATE}/24", "dev", WIRE))

    def connected():
        return sorted(path["fabric"] for path in client.status()["sessions"][0]["paths"] if path["state"] == "connected")

    wait_until("both paths are up", lambda: connected() == ["rdma", "tcp"], SLOW_S)
    step("over RDMA, too")
    client.ctl("paths", "disconnect", "guest", "127.0.0.1:1235")
    run("qemu-io", "-f", "raw", "-c", "write -P 7 1M 256k", "-c", "read -P 7 1M 256k", lab.uri("vol1"))
    check(client.stop() == 0 and server.stop() == 0, "the end of the daemons")
print("ok")
