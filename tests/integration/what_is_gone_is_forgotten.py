"""--save of a removal forgets what is gone in whatever way: its last flush failed, the answer came too late, it was removed before."""
from configurations import *
from nbd_clients import *
from other_nbd_servers import *


def names(daemon, kind):
    return [one["name"] for one in saved(daemon).get(kind, [])]


def keep(daemon, piece):
    """As if rnbdctl had kept it."""
    os.makedirs(folder_of(daemon), exist_ok=True)
    with open(os.path.join(folder_of(daemon), "90-rnbdctl.yaml"), "w") as out:
        json.dump(piece, out)
    check(config(daemon, "apply")[0]["state"] == "applied", "it is made")


def what_is_not_there(daemon, make, remove, kind):
    """Nothing to forget is an error as ever, and leaves no file; what is gone already is forgotten."""
    absent = daemon.ctl(*remove, "none", "--save", ok=False)
    check(absent.returncode == 4 and "none" in absent.stderr, absent)
    check(saved(daemon) is None or "none" not in str(saved(daemon)), "nothing was written")
    for words in ((), ("--json",)):
        daemon.ctl(*make, "--save")
        check(names(daemon, kind) == ["b"], saved(daemon))
        daemon.ctl(*remove, "b")
        again = daemon.ctl(*words, *remove, "b", "--save")
        check("b" not in names(daemon, kind), saved(daemon))
        if words:
            check(json.loads(again.stdout)["ok"], again.stdout)
        else:
            check("taken out of" in again.stdout and "90-rnbdctl.yaml" in again.stdout, again.stdout)
    check(daemon.ctl(*remove, "b", "--save", ok=False).returncode == 4, "there is nothing left of it")
    check(config(daemon, "diff")[0]["state"] == "same", "nothing comes back")


def mapped(lab, server, client, exported):
    """Kept at both daemons; an NBD client of it."""
    name = exported["name"]
    keep(server, {"exports": [exported]})
    wait_until("it is ready", lambda: all(e["state"] == "ready" for e in server.status()["exports"]))
    keep(client, {"devices": [{"name": name, "session": "host-a", "volume": name, "access": "rw",
                               "nbd": f"unix:{lab.socket('client', name)}"}]})
    wait_until("it is open", lambda: all(d["state"] == "open" for d in client.status()["devices"]))
    return connected(lab, name)


def an_answer_that_comes_too_late(lab, server, client):
    gate = lab.path("gate")
    h = mapped(lab, server, client, {
        "name": "late", "allow": [{"session": "host-a", "access": "rw"}],
        "storage": {"kind": "delay", "of": {"kind": "memory", "size": "1MiB"}, "gate": gate}})
    with open(gate, "w"):
        pass
    h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(4096)), 0)
    wait_until("a write is under way", lambda: h.poll(0) is not None and sum(
        s["in_flight"] for s in server.status()["sessions"]) == 1)
    both = ((server, ("exports", "remove"), "exports"), (client, ("unmap",), "devices"))
    for daemon, remove, kind in both:
        late = daemon.ctl("--timeout", "0.5", *remove, "late", "--force", "--save", ok=False)
        check(late.returncode == 7 and "not forgotten yet" in late.stderr, late)
        check(names(daemon, kind) == ["late"], saved(daemon))
    # It goes already, whoever asks, and however.
    check(client.ctl("--timeout", "0.2", "unmap", "late", ok=False).returncode == 7, "it is waited for")
    os.unlink(gate)
    for daemon, remove, kind in both:
        wait_until("it is gone", lambda: "late" not in [one["name"] for one in daemon.status()[kind]])
        daemon.ctl(*remove, "late", "--save")
        check(saved(daemon) == {}, saved(daemon))


def a_last_flush_that_fails(lab, server, client):
    silent = serve(lab, "flushed")
    mapped(lab, server, client, export_of(lab, "flushed")).pwrite(b"a" * 4096, 0)
    silent.send_signal(signal.SIGSTOP)
    gone = server.ctl("exports", "remove", "flushed", "--force", "--save", ok=False)
    check(gone.returncode == 1 and "last flush failed" in gone.stderr, gone)
    check("taken out of" in gone.stdout and saved(server) == {}, (gone, saved(server)))
    # The same of a device: nothing has flushed what was acknowledged.
    lost = client.ctl("unmap", "flushed", "--force", "--save", ok=False)
    check(lost.returncode == 1 and "is unmapped, but" in lost.stderr, lost)
    check("taken out of" in lost.stdout and saved(client) == {}, (lost, saved(client)))
    silent.send_signal(signal.SIGCONT)


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    client = lab.client(server, {})
    what_is_not_there(server, ("exports", "add", "b", lab.path("b.img"), "--size", "1MiB"), ("exports", "remove"),
                      "exports")
    what_is_not_there(client, ("map", "vol1", "from", "host-a", "--name", "b"), ("unmap",), "devices")
    an_answer_that_comes_too_late(lab, server, client)
    a_last_flush_that_fails(lab, server, client)
