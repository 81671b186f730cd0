"""In the guest: the configurations change while devices of the kernel's NBD driver are mounted and busy.

What a file does not change is untouched: the same block device, bound by the same connections, in the
same session. What it adds is attached; what it removes is detached, but nothing that is mounted.
"""

from guest import *
from configurations import *

need_root()
need("fio", "mkfs.ext4", "modprobe", "resize2fs")


class Files:
    """What the files of both sides say."""

    def __init__(self, lab, port):
        self.lab, self.port = lab, port
        self.exports = {name: export(name, lab.path(f"{name}.img"), 32 << 20)
                        for name in ("busy", "idle", "other")}
        self.session = {"name": "host-a", "paths": [{"tcp": f"127.0.0.1:{port}"}]}
        self.devices = {name: self.device(name) for name in ("busy", "idle")}

    def device(self, name, **options):
        return dict({"name": name, "session": "host-a", "volume": name, "access": "rw", "device": "auto",
                     "device_connections": 2, "nbd": f"unix:{self.lab.socket('client', name)}"}, **options)

    def server(self):
        return {"listen": [{"tcp": f"0.0.0.0:{self.port}"}], "exports": list(self.exports.values())}

    def client(self):
        return {"sessions": [self.session], "devices": list(self.devices.values())}


def read(path):
    with open(path) as text:
        return text.read().strip()


def device_of(client, name):
    return next((d for d in client.status()["devices"] if d["name"] == name), None)


def attached(client, name):
    wait_until(f"{name} is attached",
               lambda: (device_of(client, name) or {"kernel": {}})["kernel"].get("state") == "attached", SLOW_S)
    return device_of(client, name)["kernel"]["path"]


def is_bound(device):
    return os.path.exists(f"/sys/block/{os.path.basename(device)}/pid")


class Untouched:
    """What is true of `busy` during all of it."""

    def __init__(self, server, client, where, load):
        self.server, self.client, self.where, self.load = server, client, where, load
        self.before = self.picture()

    def picture(self):
        device = device_of(self.client, "busy")
        session = self.client.status()["sessions"][0]
        path = next(p for p in session["paths"] if p["destination"].startswith("127.0.0.1:"))
        base = f"/sys/block/{os.path.basename(device['kernel']['path'])}"
        return {"device": device["kernel"]["path"], "pid": read(f"{base}/pid"), "backend": read(f"{base}/backend"),
                "connections": device["kernel"]["connections"], "errors": device["errors"],
                "reconnects": path["reconnects"], "state": path["state"],
                "sessions": [(s["name"], s["id"]) for s in self.server.status()["sessions"]],
                "mounted": os.path.ismount(self.where)}

    def check(self):
        now = self.picture()
        check(now == self.before, f"before {self.before}, now {now}")
        self.load.check()
        start = device_of(self.client, "busy")["writes"]
        wait_until("more is written", lambda: self.load.check() or device_of(self.client, "busy")["writes"] > start + 8,
                   SLOW_S)


def changed(document):
    check(document["state"] == "applied", document)
    return changes(document)


def devices_come_and_go(files, client, untouched):
    step("a device is added, by SIGHUP: it is attached, the busy one notices nothing")
    files.devices["other"] = files.device("other")
    write_config(client, files.client())
    log = reload(client)
    check("device other: added" in log, log)
    device = attached(client, "other")
    check(is_bound(device) and size_of(device) == 32 << 20, device)
    untouched.check()

    step("nothing differs: nothing is done")
    check(changed(config(client, "apply")[0]) == {}, "a change")
    untouched.check()

    step("other connections: it is made anew, alone")
    files.devices["other"]["device_connections"] = 4
    write_config(client, files.client())
    check(changed(config(client, "apply")[0]) == {"device other": "replaced"}, "changes")
    device = attached(client, "other")
    check(device_of(client, "other")["kernel"]["connections"] == 4, "connections")
    run("dd", "if=/dev/zero", f"of={device}", "bs=64k", "count=4", "oflag=direct")
    untouched.check()

    step("it is removed: it is detached")
    del files.devices["other"]
    write_config(client, files.client())
    check(changed(config(client, "apply")[0]) == {"device other": "removed"}, "changes")
    check(device_of(client, "other") is None and not is_bound(device), "it is gone")
    untouched.check()

    step("removed, and not confirmed: it comes back")
    files.devices["other"] = files.device("other", device="/dev/nbd9")
    write_config(client, files.client())
    check(changed(config(client, "apply")[0]) == {"device other": "added"}, "changes")
    check(attached(client, "other") == "/dev/nbd9", "the one that was asked for")
    del files.devices["other"]
    write_config(client, files.client())
    check(changed(config(client, "apply", "--confirm-within", "1s")[0]) == {"device other": "removed"}, "changes")
    check(attached(client, "other") == "/dev/nbd9", "taken back")
    untouched.check()
    check(changed(config(client, "apply")[0]) == {"device other": "removed"}, "the files still say so")


def what_is_mounted_stays(lab, files, client, untouched):
    step("one that is mounted is removed: refused whole, by either way")
    idle, where = attached(client, "idle"), lab.path("idle")
    os.mkdir(where)
    run("mkfs.ext4", "-q", idle)
    run("mount", idle, where)
    lab.cleanups.append(lambda: run("umount", "-l", where, ok=False))
    del files.devices["idle"]
    files.devices["other"] = files.device("other")
    write_config(client, files.client())
    document, code = config(client, "apply", ok=False)
    check(code == 5 and document["state"] == "refused", (code, document))
    conflict = next(one["conflict"] for one in document["objects"] if one["name"] == "idle")
    check(f"{idle} is mounted on {where}" in conflict, conflict)
    log = reload(client)
    check("is mounted on" in log and "nothing is changed" in log, log)
    check(device_of(client, "other") is None and attached(client, "idle") == idle, "nothing is changed")
    untouched.check()

    step("it is unmounted: then it goes, and the new one comes")
    run("umount", where)
    check(changed(config(client, "apply")[0]) == {"device idle": "removed", "device other": "added"}, "changes")
    check(not is_bound(idle) or attached(client, "other") == idle, "it is gone")
    attached(client, "other")
    untouched.check()

    step("by force also one that is mounted")
    other = attached(client, "other")
    run("mkfs.ext4", "-q", other)
    run("mount", other, where)
    del files.devices["other"]
    write_config(client, files.client())
    check(changed(config(client, "apply", "--force")[0]) == {"device other": "removed"}, "changes")
    check(device_of(client, "other") is None, "it is gone")
    # The kernel counts it as bound as long as somebody has it open.
    run("umount", where)
    wait_until("the kernel has let go", lambda: not is_bound(other), SLOW_S)
    untouched.check()


def the_session_changes(files, client, untouched):
    step("the policy and the paths of the session change under the mounted device")
    second = {"tcp": f"127.0.0.2:{files.port}"}
    files.session.update(policy="round-robin", paths=[files.session["paths"][0], second])
    write_config(client, files.client())
    check(changed(config(client, "apply")[0]) == {"session host-a": "changed",
                                                  f"path host-a 127.0.0.2:{files.port}": "added"}, "changes")
    wait_until("both paths are up", lambda: [p["state"] for p in client.status()["sessions"][0]["paths"]] ==
               ["connected"] * 2, SLOW_S)
    untouched.check()
    files.session["paths"] = files.session["paths"][:1]
    write_config(client, files.client())
    reload(client)
    wait_until("the path is gone", lambda: len(client.status()["sessions"][0]["paths"]) == 1, SLOW_S)
    untouched.check()


def the_server_changes(files, server, untouched):
    step("exports come, grow and go: a mounted device grows, the rest notices nothing")
    device = untouched.before["device"]
    files.exports["new"] = export("new", files.lab.path("new.img"), 4 << 20)
    files.exports["busy"]["size"] = 40 << 20
    write_config(server, files.server())
    check(changed(config(server, "apply")[0]) == {"export new": "added", "export busy": "changed"}, "changes")
    wait_until("the kernel knows", lambda: size_of(device) == 40 << 20, SLOW_S)
    run("resize2fs", device)
    untouched.check()
    del files.exports["new"], files.exports["other"]
    write_config(server, files.server())
    log = reload(server)
    check("export new: removed" in log and "export other: removed" in log, log)
    untouched.check()
    busy = files.exports.pop("busy")
    write_config(server, files.server())
    check(config(server, "apply", ok=False)[1] == 5, "an export that is open is taken away")
    files.exports["busy"] = busy
    write_config(server, files.server())
    untouched.check()


with Lab() as lab:
    run("modprobe", "nbd", "max_part=4")
    files = Files(lab, free_port())
    server = lab.server(list(files.exports.values()), port=files.port, host="0.0.0.0")
    client = Daemon(lab, "rnbd-client", "client", files.client())
    lab.daemons.append(client)
    client.start()
    busy, where = attached(client, "busy"), lab.path("busy")
    os.mkdir(where)
    run("mkfs.ext4", "-q", busy)
    run("mount", busy, where)
    lab.cleanups.append(lambda: run("umount", "-l", where, ok=False))
    load = Passes("fio", "--name=load", f"--directory={where}", "--size=4m", "--rw=randrw", "--bs=4k-64k",
                  "--ioengine=libaio", "--direct=1", "--iodepth=8", "--verify=crc32c", "--verify_fatal=1",
                  "--do_verify=1", "--loops=2")
    try:
        untouched = Untouched(server, client, where, load)
        devices_come_and_go(files, client, untouched)
        what_is_mounted_stays(lab, files, client, untouched)
        the_session_changes(files, client, untouched)
        the_server_changes(files, server, untouched)
    finally:
        load.stopping = True
    load.finish()
    run("umount", where)
    run("e2fsck", "-fn", busy)
    check(client.stop() == 0 and not is_bound(busy), "rnbd-client ends, and lets go")
    step(f"ok: {load.done} passes of fio")
