"""A configuration whose new paths lead nowhere takes no path away that works, unless by force; what it could not do it tries again."""
from configurations import *
from harness import *
from nbd_clients import *

with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1"), "1MiB")])
    client = lab.client(server, {"vol1": {}})
    works, nowhere = f"127.0.0.1:{server.port}", f"127.0.0.1:{free_port()}"
    with open(client.config_path) as text:
        files = json.load(text)

    def use(*paths):
        files["sessions"][0]["paths"] = [{"tcp": path} for path in paths]
        write_config(client, files)

    def paths():
        return {path["destination"]: path["state"] for path in client.status()["sessions"][0]["paths"]}

    use(nowhere)
    # The second time none comes any more.
    for which in ("comes in its place", "is left then"):
        document, exit_code = config(client, "apply", ok=False)
        failed = {one["name"]: one["failure"] for one in document["objects"] if one["failure"]}
        check(exit_code == 1 and len(failed) == 1, document)
        check(f"it stays, because none that {which} is connected" in str(failed) and "refused" in str(failed), failed)
        check(paths()[works] == "connected" and nowhere in paths(), paths())
    connected(lab, "vol1").pwrite(b"a" * 4096, 0)
    check(config(client, "diff")[0]["state"] == "differs", "it is not as the files say")
    use(works)
    check(config(client, "apply")[0]["state"] == "applied" and list(paths()) == [works], "the way back")
    use(nowhere)
    check(config(client, "apply", "--force")[0]["state"] == "applied" and list(paths()) == [nowhere], "by force")
    use(works)
    check(config(client, "apply")[0]["state"] == "applied", "none of them worked: there was nothing to keep")
    wait_until("it is up again", lambda: paths() == {works: "connected"})

    # What does not work is not waited for, though nothing that works comes in its place.
    use(works, nowhere)
    check(config(client, "apply")[0]["state"] == "applied", "beside it")
    also_nowhere = f"127.0.0.1:{free_port()}"
    use(works, also_nowhere)
    check(config(client, "apply")[0]["state"] == "applied" and set(paths()) == {works, also_nowhere}, paths())
