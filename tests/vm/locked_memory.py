"""In the guest, under soft_roce: a daemon that may lock too little memory for RDMA, or not open the device, uses TCP.

The path over RDMA is not there, and the log of the daemon that has too little says why.
"""

from guest import *

need_root()
need("setpriv", "prlimit")
HOST = os.environ["RNBD_RDMA_HOST"]
SOME_KIB = 64
# As a user without privileges, who may not raise the limit.
LIMITED = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
           "prlimit", f"--memlock={SOME_KIB * 1024}:{SOME_KIB * 1024}")
WHY = f"the limit of locked memory (ulimit -l, LimitMEMLOCK=) is {SOME_KIB} KiB"


def one_is_limited(limited, what, why):
    step(f"{limited}, {what}")
    with Lab() as lab:
        os.chmod(lab.folder, 0o777)
        server = Daemon(lab, "rnbd-server", "server", {
            "listen": [{"rdma": f"{HOST}:1235"}, {"tcp": f"{HOST}:1236"}],
            "heartbeat": {"interval": "1s", "timeout": "10s"},
            "exports": [export("vol1", lab.path("vol1.img"), "64MiB", session="guest")]},
            LIMITED if limited == "rnbd-server" else ())
        client = Daemon(lab, "rnbd-client", "client", {
            "sessions": [{"name": "guest", "paths": [{"rdma": f"{HOST}@{HOST}:1235"}, {"tcp": f"{HOST}:1236"}],
                          "heartbeat": {"interval": "1s", "timeout": "10s"}}],
            "devices": [{"name": "vol1", "volume": "vol1", "session": "guest", "access": "rw",
                         "nbd": f"unix:{lab.socket('client', 'vol1')}"}]},
            LIMITED if limited == "rnbd-client" else ())
        lab.daemons += [server, client]
        server.start()
        client.start()
        wait_until("the device is open", lambda: client.status()["devices"][0]["state"] == "open", SLOW_S)

        def paths():
            return {path["fabric"]: path for path in client.status()["sessions"][0]["paths"]}

        wait_until("several attempts over RDMA have failed", lambda: paths()["rdma"]["attempts"] > 3, SLOW_S)
        check(paths()["tcp"]["state"] == "connected" and paths()["rdma"]["state"] != "connected", paths())
        run("qemu-io", "-f", "raw", "-c", "write -P 7 1M 256k", "-c", "read -P 7 1M 256k", lab.uri("vol1"))
        daemon = {"rnbd-server": server, "rnbd-client": client}[limited]
        check(why in daemon.log(), daemon.log())
        check(client.stop() == 0 and server.stop() == 0, "the end of the daemons")


def open_to_all(mode):
    for device in os.listdir("/dev/infiniband"):
        os.chmod(f"/dev/infiniband/{device}", mode)


for name in ("rnbd-server", "rnbd-client"):
    open_to_all(0o666)
    one_is_limited(name, f"{SOME_KIB} KiB of memory", WHY)
    open_to_all(0o600)
    one_is_limited(name, "no device", f"no RDMA device that this user may use has the address {HOST} (/dev/infiniband/")
print("ok")
