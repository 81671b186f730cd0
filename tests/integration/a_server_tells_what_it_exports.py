#!/usr/bin/env python3
"""rnbdctl discover shows the exports that a session may open, ten thousand of them at once; and a
session hears of what becomes of them."""

import json
import os
import shutil
import time

from harness import Lab, built_with, check, export, free_port, run, wait_until

# Sanitized daemons take seconds for as many.
COUNT = 2000 if built_with("RNBD_SANITIZE") else 10000


def null(name, size, session="host-a", access="rw"):
    return {"name": name, "storage": {"kind": "null", "size": size},
            "allow": [{"session": session, "access": access}]}


def discover(client, *words):
    return json.loads(client.ctl("--json", "discover", *words).stdout)["result"]["exports"]


with Lab() as lab:
    disk = lab.path("disk")
    exports = [null(f"null-{i:06}", 1048576 * (i % 7 + 1)) for i in range(COUNT)]
    exports.append(null("theirs", 4096, session="host-b"))
    exports.append(export("readable", disk, size=8 << 20, access="ro"))
    exports.append(export("disk", lab.path("disk2"), size=8 << 20))
    # A sanitized daemon beside other work is busy with so many for longer than a path's usual silence.
    patient = {"heartbeat": {"interval": "1s", "timeout": "300s"}}
    server = lab.server(exports, **patient)
    client = lab.client(server, {"disk": {}}, session_options=dict(patient, request_deadline="200s"))

    started = time.monotonic()
    found = discover(client, "host-a")
    print(f"{len(found)} exports in {time.monotonic() - started:.3f} s")
    by_name = {one["name"]: one for one in found}
    check(len(found) == COUNT + 2, f"{len(found)} exports instead of {COUNT + 2}")
    check("theirs" not in by_name, "an export of another session is shown")
    check(by_name["null-000005"]["size_bytes"] == 6 * 1048576, "a size is wrong")
    check(by_name["readable"]["access"] == "ro" and by_name["disk"]["access"] == "rw", "access")
    check(by_name["disk"]["in_use"] == 1 and by_name["readable"]["in_use"] == 0, "users")
    check(all(one["state"] == "ready" for one in found), "all are ready")
    check(f"null-{COUNT - 1:06}" in client.ctl("discover", "host-a").stdout, "the table")

    address = f"127.0.0.1:{server.port}"
    check(len(discover(client, address)) == COUNT + 2, "by the address of a session's path")
    other = discover(client, address, "--session", "host-b")
    check([one["name"] for one in other] == ["theirs"], f"what host-b may open: {other}")
    # Not by status, which has ten thousand exports: a sanitized server would be silent over it.
    def sessions():
        return json.loads(server.ctl("--json", "sessions").stdout)["result"]["sessions"]
    wait_until("the session of the question has ended", lambda: [one["name"] for one in sessions()] == ["host-a"])
    check(client.ctl("discover", "host-z", ok=False).returncode == 4, "no such session")
    nobody = f"127.0.0.1:{free_port()}"
    check(client.ctl("discover", nobody, ok=False).returncode == 2, "no name to ask under")
    for words, why in ((["host-a", "--session", "host-b"], "--session: found host-b beside the session host-a"),
                       ([nobody, "--session", "a.b"], '--session: found "a.b", expected a session name')):
        wrong = client.ctl("discover", *words, ok=False)
        check(wrong.returncode == 2 and why in wrong.stderr, wrong.stderr)
    # Nor is the session that has a path to it by TCP the one to ask by RDMA.
    rdma = client.ctl("discover", f"rdma:{address}", ok=False)
    check(rdma.returncode == 2 and f"no session has a path to rdma:{address}" in rdma.stderr, rdma.stderr)
    def refused():
        late = client.ctl("--timeout", "1", "discover", nobody, "--session", "host-c", ok=False)
        check(late.returncode == 7 and nobody in late.stderr, late.stderr)
        return late.stderr == (f"rnbdctl: {nobody}: cannot connect: Connection refused\n"
                               "rnbdctl: does rnbd-server listen there? --timeout waits longer\n")
    wait_until("a second was enough for an attempt, and it is told", refused)
    # A server's RDMA address is not asked over TCP.
    rdma = client.ctl("--timeout", "1", "discover", f"rdma:{address}", "--session", "host-d",
                      ok=False)
    check(rdma.returncode == 1 and f"rdma:{address}" in rdma.stderr, rdma.stderr)

    # An export is resized while it is open: the client knows, and so does who connects to it.
    server.ctl("exports", "resize", "disk", "12MiB")
    wait_until("the device has its new size",
               lambda: client.status()["devices"][0]["size_bytes"] == 12 << 20)
    check(client.status()["sessions"][0]["paths"][0]["reconnects"] == 0, "without a reconnect")
    if shutil.which("nbdinfo"):
        seen = run("nbdinfo", "--size", lab.uri("disk")).stdout.strip()
        check(seen == str(12 << 20), f"an NBD client sees {seen}")
    server.ctl("exports", "resize", "disk", "8MiB", "--shrink")
    wait_until("the device is smaller again",
               lambda: client.status()["devices"][0]["size_bytes"] == 8 << 20)

    # Exports that come and go.
    server.ctl("exports", "add", "new", lab.path("new"), "--size", "1MiB", "--allow", "host-a=rw")
    check("new" in [one["name"] for one in discover(client, "host-a")], "an added export")
    server.ctl("exports", "remove", "new")
    check("new" not in [one["name"] for one in discover(client, "host-a")], "a removed export")

    # Events, as the client's log tells them.
    os.rename(lab.path("disk2"), lab.path("away"))
    wait_until("the client hears that it waits",
               lambda: "host-a: export disk: waiting" in client.log())
    os.rename(lab.path("away"), lab.path("disk2"))
    wait_until("the client hears that it is ready",
               lambda: "host-a: export disk: ready" in client.log())

    # Who may open what, by the server's file.
    def allow_writing(config):
        readable = next(e for e in config["exports"] if e["name"] == "readable")
        readable["allow"][0]["access"] = "rw"

    server.config_with(allow_writing)
    server.ctl("config", "apply")
    wait_until("the client hears that it may write",
               lambda: "host-a: export readable: access, 8388608 bytes, rw" in client.log())

    # What the server means to do.
    def session():
        return client.status()["sessions"][0]

    check(session()["server"] == "serving" and session()["reason"] == "", session())
    server.ctl("drain", "--no-wait")
    wait_until("the client hears that the server is drained",
               lambda: session()["server"] == "draining")
    check("being drained" in session()["reason"], session()["reason"])
    check("being drained" in client.ctl("sessions").stdout, "rnbdctl sessions")
    check(session()["state"] == "connected", "what is open goes on")
    for words in (["list"], ["exports"]):
        check("rnbd-server is draining for " in server.ctl(*words).stdout, words)
        check(json.loads(server.ctl("--json", *words).stdout)["result"]["state"] == "draining", words)
    server.ctl("drain", "--off")
    wait_until("the client hears that it is not", lambda: session()["server"] == "serving")
    check(session()["reason"] == "", session()["reason"])
    server.stop()
    wait_until("the client hears of the end", lambda: "host-a: the server is about to end" in client.log())
    check(session()["server"] == "ending", session()["server"])
    # A session without its server is not asked for ever; who asks says how long.
    wait_until("it was tried again", lambda: "refused" in session()["paths"][0]["reason"])
    for _ in range(2):
        late = client.ctl("--timeout", "1", "discover", "host-a", ok=False)
        check(late.returncode == 7 and "host-a: " in late.stderr and "refused" in late.stderr,
              (late.returncode, late.stderr))
    server.start()
    wait_until("the device is open again",
               lambda: client.status()["devices"][0]["state"] == "open")
    check("disk" in [one["name"] for one in discover(client, "host-a")], "asked anew")
    # Followed anew, over the new server's messages.
    os.rename(lab.path("disk2"), lab.path("away"))
    wait_until("the client hears of it from the new server",
               lambda: client.log().count("host-a: export disk: waiting") == 2)
    check(session()["server"] == "serving", "the new server serves")
    os.rename(lab.path("away"), lab.path("disk2"))
