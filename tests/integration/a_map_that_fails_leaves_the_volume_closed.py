"""A map whose NBD address is taken opens nothing at the server, also where a former life had it open.

A life that was killed left a note of what it held, for whoever comes back with it. Nobody does by such a map; so the note
stays, and other sessions may write.
"""
from harness import *

need("nbdsh")
with Lab() as lab:
    both = {"allow": [{"session": session, "access": "rw"} for session in ("host-a", "host-b")]}
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB"),
                         dict(export("vol2", lab.path("vol2.img"), "1MiB"), **both)])
    client = lab.client(server, {"vol1": {}})

    def opens():
        vol2, = [e for e in server.status()["exports"] if e["name"] == "vol2"]
        return [holder["session"] for holder in vol2["opens"]]

    def wait_for_open(daemon):
        wait_until("the devices are open", lambda: all(d["state"] == "open" for d in daemon.status()["devices"]))

    words = ["map", "vol2", "--session", "host-a", "--nbd"]
    client.ctl(*words, f"unix:{lab.path('vol2.sock')}")
    wait_for_open(client)
    run("nbdsh", "-u", f"nbd+unix:///vol2?socket={lab.path('vol2.sock')}", "-c", "h.pwrite(b'x' * 4096, 0)")
    client.kill()
    client.start()
    wait_for_open(client)

    taken = lab.path("taken.sock")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(taken)
        other.listen()
        failed = client.ctl(*words, f"unix:{taken}", ok=False)
    check(failed.returncode != 0 and taken in failed.stderr, f"the address is named: {failed}")
    check([d["name"] for d in client.status()["devices"]] == ["vol1"], "it is not mapped")
    check(opens() == [], f"nor open at the server: {opens()}")

    # The note is still there: what the killed life held comes back, as the same writer.
    client.ctl(*words, f"unix:{lab.path('vol2.sock')}")
    wait_for_open(client)
    check(opens() == ["host-a"], opens())
    client.ctl("unmap", "vol2")
    second = lab.client(server, {"vol2": {}}, name="second", session="host-b")
    check(opens() == ["host-b"], opens())
