"""A device or listener whose new address is taken is told as failed, is nobody's doing, and comes with the next apply."""
from harness import *

need("nbdinfo")
with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    client = lab.client(server, {"vol1": {}})
    taken = lab.path("taken.sock")
    other = socket.socket(socket.AF_UNIX)
    other.bind(taken)
    other.listen()

    client.config_with(lambda config: config["devices"][0].update(nbd=f"unix:{taken}"))
    first = client.ctl("config", "apply", ok=False)
    check(first.returncode == 1 and "another process serves" in first.stdout, first.stdout + first.stderr)
    again = client.ctl("config", "diff", ok=False).stdout
    check("added" in again and "rnbdctl" not in again.split("WHAT", 1)[1], again)

    other.close()
    client.ctl("config", "apply")
    wait_until("it is open", lambda: [one["state"] for one in client.status()["devices"]] == ["open"])
    check(run("nbdinfo", "--size", f"nbd+unix:///vol1?socket={taken}").stdout.strip() == str(1 << 20), "its size")
    check("same" in client.ctl("--json", "config", "diff").stdout, "nothing is left to do")

    # What rnbdctl does is still told as such.
    client.ctl("unmap", "vol1")
    check("removed by rnbdctl" in client.ctl("config", "diff", ok=False).stdout, "it is told")

    # A listener of the server.
    other = socket.socket()
    other.bind(("127.0.0.1", 0))
    other.listen()
    taken = "127.0.0.1:%d" % other.getsockname()[1]
    server.config_with(lambda config: config["listen"].append({"tcp": taken}))
    first = server.ctl("config", "apply", ok=False)
    check(first.returncode == 1 and f"cannot listen on tcp {taken}" in first.stdout, first.stdout + first.stderr)
    again = server.ctl("config", "diff").stdout
    check(f"tcp {taken}" in again and "rnbdctl" not in again.split("WHAT", 1)[1], again)
    other.close()
    server.ctl("config", "apply")
    check("same" in server.ctl("--json", "config", "diff").stdout, "nothing is left to do")
    check(len(server.status()["listen"]) == 2, server.status()["listen"])
