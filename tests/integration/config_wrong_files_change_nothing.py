"""Files with an error, or with a change that must not be made, change nothing, however they come."""
from configurations import *
from harness import *
from multipath_lab import Judge

def served(server):
    status = server.status()
    return ([(e["name"], e["path"], e["size_bytes"], e["allow"], e["opens"]) for e in status["exports"]],
            [(s["name"], s["id"]) for s in status["sessions"]],
            [(one["fabric"], one["address"], one["state"]) for one in status["listen"]])


def mapped(client):
    status = client.status()
    return ([(d["name"], d["session"], d["volume"], d["nbd"]) for d in status["devices"]],
            [(s["name"], s["policy"], [(p["label"], p["reconnects"]) for p in s["paths"]])
             for s in status["sessions"]])


def text_of(path):
    with open(path) as text:
        return text.read()


def refused(daemon, picture, expected, status=1):
    """By every way: nothing is changed, and the place is named."""
    before = picture(daemon)
    if status == 1:
        document, code = config(daemon, "check", ok=False)
        check(code == 1 and document["state"] == "refused", document)
        check(config(daemon, "diff", ok=False)[1] == 1, "diff refuses it, too")
    document, code = config(daemon, "apply", ok=False)
    check(code == status and document["state"] == "refused", (code, document))
    text = daemon.ctl("config", "apply", ok=False).stdout
    for words in expected:
        check(words in text, (words, text))
    log = reload(daemon)
    for words in expected:
        check(words in log, (words, log))
    check("nothing is changed" in log, log)
    check(picture(daemon) == before, (before, picture(daemon)))
    check(daemon.running(), "it runs")


with Lab() as lab:
    exports = [export("vol1", lab.path("vol1.img"), "64MiB"), export("vol2", lab.path("vol2.img"), "1MiB")]
    server = lab.server(exports, heartbeat=PATIENT["heartbeat"])
    client = lab.client(server, {"vol1": {}}, session_options=PATIENT)
    judge = Judge(lab, lab.uri("vol1"), blocks=512)
    listen = [{"tcp": f"127.0.0.1:{server.port}"}]
    good = {"listen": listen, "exports": exports, "heartbeat": PATIENT["heartbeat"]}
    write_config(server, good)
    check(config(server, "diff")[0]["state"] == "same", "as it was started")

    twice = {"exports": [export("vol2", lab.path("other.img"), "1MiB")]}
    for bad, pieces, expected in [
            ({"exports": exports}, {}, ["listen", "server.yaml:1:1"]),
            (dict(good, exprots=[]), {}, ["exprots", "exports"]),
            (dict(good, exports=exports + [dict(exports[1], name="vol3", size="lots")]), {}, ["size", "lots"]),
            (good, {"50-twice.yaml": twice}, ["50-twice.yaml:4", "server.yaml:", "vol2"]),
            (dict(good, queue_depth=0), {}, ["queue_depth"]),
            (good, {"50-list.yaml": ["x"]}, ["50-list.yaml:1:1", "a mapping"])]:
        write_config(server, bad, pieces)
        refused(server, served, expected)
    write_config(server, good)
    with open(os.path.join(folder_of(server), "60.yaml"), "w") as out:
        out.write("exports: [\n")
    refused(server, served, ["60.yaml:"])
    os.unlink(os.path.join(folder_of(server), "60.yaml"))
    os.mkdir(os.path.join(folder_of(server), "70.yaml"))
    refused(server, served, ["70.yaml"])
    os.rmdir(os.path.join(folder_of(server), "70.yaml"))
    os.rename(server.config_path, server.config_path + ".away")
    refused(server, served, ["server.yaml", "No such file"])
    os.rename(server.config_path + ".away", server.config_path)

    # What is in use stays, with everything else of the same files.
    added = export("vol3", lab.path("vol3.img"), "1MiB")
    write_config(server, dict(good, exports=[exports[1], added]))
    refused(server, served, ["vol1", "open by host-a (rw)"], status=5)
    # So does what would be lost.
    write_config(server, dict(good, exports=[exports[0], dict(exports[1], size="512KiB"), added]))
    refused(server, served, ["vol2", "would be lost"], status=5)
    write_config(server, good)
    check(config(server, "apply")[0]["state"] == "applied", "a good one is taken")

    session = {"name": "host-a", "paths": [{"tcp": f"127.0.0.1:{server.port}"}], **PATIENT}
    device = {"name": "vol1", "session": "host-a", "volume": "vol1", "access": "rw",
              "nbd": f"unix:{lab.socket('client', 'vol1')}"}
    for bad, pieces, expected in [
            ({"sessions": [session], "devices": [dict(device, session="host-b")]}, {}, ["host-b", "client.yaml:"]),
            ({"sessions": [dict(session, policy="best")], "devices": [device]}, {}, ["policy", "round-robin"]),
            ({"sessions": [session], "devices": [device]}, {"a.yaml": {"sessions": [session]}},
             ["a.yaml:4", "client.yaml:", "host-a"])]:
        write_config(client, bad, pieces)
        refused(client, mapped, expected)
    write_config(client, {"sessions": [session], "devices": []})
    refused(client, mapped, ["vol1", "it has 1 NBD client; "], status=5)
    # A full disk leaves such a file; a comment says that nothing is meant.
    write_config(client, {"sessions": [session], "devices": [device]}, {"90-more.yaml": {
        "devices": [dict(device, name="vol2", volume="vol2", nbd=f"unix:{lab.socket('client', 'vol2')}")]}})
    check(config(client, "apply")[0]["state"] == "applied", "two devices")
    open(os.path.join(folder_of(client), "90-more.yaml"), "w").close()
    refused(client, mapped, ["90-more.yaml", "found no text"])
    with open(os.path.join(folder_of(client), "90-more.yaml"), "w") as out:
        out.write("# nothing\n")
    check(config(client, "apply")[0]["state"] == "applied" and len(client.status()["devices"]) == 1, "one device")
    write_config(client, {"sessions": [session], "devices": [device]})
    open(os.path.join(folder_of(client), "90-empty.yaml"), "w").close()
    check(config(client, "apply")[0]["state"] == "applied", "where nothing would go it is no error")
    write_config(client, {"sessions": [session], "devices": [device]})
    check(config(client, "diff")[0]["state"] == "same", "the client is as it was")

    judge.wait_for_progress()
    judge.finish()
    check(all(d["errors"] == 0 for d in client.status()["devices"]), "no request failed")
