"""A new hold_time counts for the requests that wait already: they fail, and later ones wait again."""
from configurations import *
from harness import *

need("qemu-io")


def read(lab):
    return subprocess.Popen(["qemu-io", "-f", "raw", "-c", "read 0 4k", lab.uri("vol1")],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    session = {"name": "host-a", "paths": [{"tcp": f"127.0.0.1:{server.port}"}],
               "reconnect_delay": {"max": "100ms"}}
    client = lab.client(server, {"vol1": {}}, session_options={"reconnect_delay": {"max": "100ms"}})
    device = {"name": "vol1", "session": "host-a", "volume": "vol1", "access": "rw",
              "nbd": f"unix:{lab.socket('client', 'vol1')}"}

    def explain():
        return client.ask("explain", device="vol1")

    server.kill()
    waiting = read(lab)
    wait_until("it waits", lambda: explain()["requests"])
    check(explain()["settings"]["hold_time_s"] is None, "for ever")
    write_config(client, {"sessions": [dict(session, hold_time="100ms")], "devices": [device]})
    document, _ = config(client, "apply")
    check(changes(document) == {"session host-a": "changed"}, document)
    check(document["objects"][0]["keys"] == ["hold_time"], document)
    output = waiting.communicate(timeout=PATIENCE_S)[0]
    check("failed" in output or waiting.returncode != 0, output)
    check(explain()["settings"]["hold_time_s"] == 0.1, "as the file says")

    # The server is back, and away again: now for ever.
    write_config(client, {"sessions": [session], "devices": [device]})
    check(config(client, "apply")[0]["state"] == "applied", "for ever again")
    server.start()
    wait_until("the device is open", lambda: client.status()["devices"][0]["state"] == "open")
    server.kill()
    waiting = read(lab)
    wait_until("it waits", lambda: explain()["requests"])
    check(explain()["session"]["hold_left_s"] is None, "for ever")
    server.start()
    output = waiting.communicate(timeout=PATIENCE_S)[0]
    check(waiting.returncode == 0 and "failed" not in output, output)
