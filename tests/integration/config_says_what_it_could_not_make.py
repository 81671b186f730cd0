"""A device or listener whose new address is taken is told as failed, is nobody's doing, and comes with the next apply; the old
one is there until then."""
from harness import *

need("nbdinfo")
with Lab() as lab:
    server = lab.server([export(name, lab.path(f"{name}.img"), "1MiB") for name in ("vol1", "vol2")])
    client = lab.client(server, {"vol1": {}})
    taken = lab.path("taken.sock")
    other = socket.socket(socket.AF_UNIX)
    other.bind(taken)
    other.listen()

    client.config_with(lambda config: config["devices"][0].update(nbd=f"unix:{taken}"))
    first = client.ctl("config", "apply", ok=False)
    check(first.returncode == 1 and "another process serves" in first.stdout, first.stdout + first.stderr)
    check("it is as it was before" in first.stdout, first.stdout)
    check("configuration: applied, but not all of it: 1 change failed" in client.log(), client.log())
    wait_until("it is open", lambda: [one["state"] for one in client.status()["devices"]] == ["open"])
    check(run("nbdinfo", "--size", lab.uri("vol1")).stdout.strip() == str(1 << 20), "the old one is back")
    again = client.ctl("config", "diff", ok=False).stdout
    check("replaced" in again and "rnbdctl" not in again.split("WHAT", 1)[1], again)
    # One that is new is not there at all.
    client.config_with(lambda config: config["devices"].append(
        dict(config["devices"][0], name="vol2", volume="vol2")))
    second = client.ctl("config", "apply", ok=False)
    check(second.returncode == 1 and second.stdout.count("another process serves") == 2, second.stdout)
    check([one["name"] for one in client.status()["devices"]] == ["vol1"], client.status()["devices"])
    again = client.ctl("config", "diff", ok=False).stdout
    check("added" in again and "rnbdctl" not in again.split("WHAT", 1)[1], again)
    client.config_with(lambda config: config["devices"].pop())

    other.close()
    client.ctl("config", "apply")
    wait_until("it is open", lambda: [one["state"] for one in client.status()["devices"]] == ["open"])
    check(run("nbdinfo", "--size", f"nbd+unix:///vol1?socket={taken}").stdout.strip() == str(1 << 20), "its size")
    check("same" in client.ctl("--json", "config", "diff").stdout, "nothing is left to do")

    # A path by RDMA where no device leads.
    client.config_with(lambda config: config["sessions"][0]["paths"].append({"rdma": "127.0.0.1:1235"}))
    first = client.ctl("config", "apply", ok=False)
    check(first.returncode == 1 and "RDMA" in first.stdout, first.stdout + first.stderr)
    again = client.ctl("config", "diff", ok=False).stdout
    check("added" in again and "rnbdctl" not in again.split("WHAT", 1)[1], again)
    client.config_with(lambda config: config["sessions"][0]["paths"].pop())
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

    # An export that cannot grow: somebody has made its file larger.
    image = lab.path("vol1.img")
    os.truncate(image, 8 << 20)
    server.config_with(lambda config: config["exports"][0].update(size="4MiB"))
    for _ in range(2):
        grown = server.ctl("config", "apply", ok=False)
        check(grown.returncode == 1 and "would be lost" in grown.stdout, grown.stdout + grown.stderr)
    os.truncate(image, 4 << 20)
    server.ctl("config", "apply")
    check(server.status()["exports"][0]["size_bytes"] == 4 << 20, server.status()["exports"])
