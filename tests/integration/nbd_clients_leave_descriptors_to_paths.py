"""NBD clients that take all descriptors they can get cost no path: a server that comes back is dialled
again while they are there, and rnbdctl is answered."""
from harness import *

LIMIT = 64
need("prlimit", "setpriv")
nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []

with Lab() as lab:
    os.chmod(lab.folder, 0o777)
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    # Root would raise the limit.
    client = lab.client(server, {"vol1": {}},
                        prefix=[*nobody, "prlimit", f"--nofile={LIMIT}:{LIMIT}"])
    clients = []
    while len(clients) < LIMIT and "refusing clients" not in client.log():
        one = socket.socket(socket.AF_UNIX)
        one.connect(lab.socket("client", "vol1"))
        clients.append(one)
        time.sleep(0.02)
    wait_until("somebody is refused", lambda: "refusing clients" in client.log())
    check(len(clients) > LIMIT / 2, f"only {len(clients)} clients were served")
    server.kill()
    wait_until("the client has noticed",
               lambda: client.status()["devices"][0]["state"] == "reopening")
    # Those that were refused insist.
    for _ in range(8):
        one = socket.socket(socket.AF_UNIX)
        one.connect(lab.socket("client", "vol1"))
        clients.append(one)
    server.start()
    wait_until("the device is open", lambda: client.status()["devices"][0]["state"] == "open")
    for one in clients:
        one.close()
    wait_until("there is room again", lambda: run("nbdinfo", "--size", lab.uri("vol1"), ok=False,
                                                  timeout=PATIENCE_S).returncode == 0)
    client.stop()
    server.stop()
