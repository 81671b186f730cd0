"""Exports are added, resized, taken away and removed while another one carries verified load."""
from fio import *
from harness import *

need("fio", "qemu-io")


def exported(server, name):
    return next((e for e in server.status()["exports"] if e["name"] == name), None)


def device(client, name):
    return next(d for d in client.status()["devices"] if d["name"] == name)


def looks(server, lab, times):
    """The server looks at each file once a second, and at this one, too: what it sees there is in the log."""
    clock = lab.path("clock.img")
    server.ctl("exports", "add", "clock", clock, "--size", "2MiB", "--allow", "host-a=ro")
    for _ in range(times):
        os.truncate(clock, 1 << 20)
        wait_until("it has looked", lambda: "made smaller by others" in exported(server, "clock")["reason"])
        os.truncate(clock, 2 << 20)
        server.ctl("exports", "resize", "clock")
    server.ctl("exports", "remove", "clock")


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "64MiB")], heartbeat=PATIENT["heartbeat"])
    # Whether its file was there is told: that of a disk which is not mounted is made anew, and empty.
    ready = f"vol1: ready: file {lab.path('vol1.img')}, "
    check(ready + "created, 67108864 bytes" in server.log(), server.log())
    server.stop()
    server.start()
    check(ready + "67108864 bytes" in server.log(), server.log())
    client = lab.client(server, {"vol1": {}}, session_options=PATIENT)
    session = server.status()["sessions"][0]["id"]
    load = VerifiedLoad(lab, client, "vol1")
    late = lab.path("late.img")

    # Added before its file is there: it waits, and comes up by itself.
    server.ctl("exports", "add", "vol2", late, "--allow", "host-a=rw")
    check(exported(server, "vol2")["state"] == "waiting", "it waits")
    twice = server.ctl("exports", "add", "vol2", late, ok=False)
    check(twice.returncode == 5 and "already" in twice.stderr, twice.stderr)
    wrong = server.ctl("exports", "add", "vol3", "relative", "--allow", "host-a=rw", ok=False)
    check(wrong.returncode == 2 and "path" in wrong.stderr, wrong.stderr)
    run("truncate", "-s", "4M", late)
    wait_until("it is ready", lambda: exported(server, "vol2")["state"] == "ready")
    client.ctl("map", "vol2", "from", "host-a", "--nbd", f"unix:{lab.path('two.sock')}")
    wait_until("it is open", lambda: device(client, "vol2")["state"] == "open")

    # Its size: by us, and by somebody else.
    server.ctl("exports", "resize", "vol2", "8MiB")
    check(os.path.getsize(late) == 8 << 20, "the file has grown")
    refused = server.ctl("exports", "resize", "vol2", "2MiB", ok=False)
    check(refused.returncode == 2 and "lost; rnbdctl exports resize --shrink" in refused.stderr, refused.stderr)
    server.ctl("exports", "resize", "vol2", "2MiB", "--shrink")
    check(os.path.getsize(late) == 2 << 20, "the file was cut")
    run("truncate", "-s", "16M", late)
    answer = json.loads(server.ctl("--json", "exports", "resize", "vol2").stdout)
    check(answer["result"] == {"export": "vol2", "size_bytes": 16 << 20}, answer)
    # Cut by somebody else: it is told until that size is taken.
    run("truncate", "-s", "4M", late)
    cut = "made smaller by others: 4194304 of the 16777216 bytes"
    wait_until("it says so", lambda: cut in exported(server, "vol2")["reason"])
    check(exported(server, "vol2")["state"] == "ready" and cut in server.ctl("exports").stdout, "and serves what is left")
    # Nothing brings back as zeroes what was lost.
    for what in ("write -P 7", "read"):
        beyond = run("qemu-io", "-f", "raw", "-c", f"{what} 15M 64k", f"nbd+unix:///vol2?socket={lab.path('two.sock')}",
                     ok=False)
        check("Input/output error" in beyond.stdout + beyond.stderr, beyond)
    check(os.path.getsize(late) == 4 << 20, "it is as long as it was made")
    run("truncate", "-s", "16M", late)
    looks(server, lab, 3)
    check(cut in exported(server, "vol2")["reason"] and server.log().count(cut) == 1, "it is told once, and not forgotten")
    refused = server.ctl("exports", "resize", "vol2", "32MiB", ok=False)
    check(refused.returncode == 2 and cut in refused.stderr and "without a size" in refused.stderr, refused.stderr)
    server.ctl("exports", "resize", "vol2")
    check(exported(server, "vol2")["reason"] == "" and exported(server, "vol2")["size_bytes"] == 16 << 20, "its size is taken")
    odd = server.ctl("exports", "resize", "vol2", "1000", ok=False)
    check(odd.returncode == 2 and "multiple" in odd.stderr, odd.stderr)

    # Taken from its session for a while.
    busy = server.ctl("exports", "remove", "vol2", ok=False)
    check(busy.returncode == 5 and "host-a (rw)" in busy.stderr, busy.stderr)
    server.ctl("exports", "evict", "vol2", "host-a", "--for", "3600")
    check(not exported(server, "vol2")["opens"], "nobody has it open")
    check(exported(server, "vol2")["shut_out"][0]["session"] == "host-a", "and it may not come back")
    check("host-a: may not open vol2 for 3600 s" in server.log(), "it is logged")
    check(server.ctl("exports", "evict", "vol2", "host-b", ok=False).returncode == 4, "it has it not")
    # For another time, or none.
    server.ctl("exports", "evict", "vol2", "host-a", "--for", "1800")
    check(1700 < exported(server, "vol2")["shut_out"][0]["left_s"] <= 1800, exported(server, "vol2"))
    said = server.ctl("exports", "evict", "vol2", "host-a", "--for", "0").stdout
    check("again" in said, said)
    wait_until("it is open again", lambda: exported(server, "vol2")["opens"])
    check(exported(server, "vol2")["shut_out"] == [], "nothing is left of it")
    server.ctl("exports", "evict", "vol2", "host-a", "--for", "3600")
    wait_until("the client is told so, though nobody uses it", lambda: "evicted by the server" in device(client, "vol2")["reason"])
    io = subprocess.Popen(["qemu-io", "-f", "raw", "-c", "write -P 7 0 64k",
                           f"nbd+unix:///vol2?socket={lab.path('two.sock')}"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for words in (["list"], ["status"], ["explain", "vol2"]):
        said = client.ctl(*words).stdout
        check("evicted by the server for a while" in said, f"{words}: {said}")
    # Back again under the same name: the session has it as before.
    server.ctl("exports", "remove", "vol2")
    server.ctl("exports", "add", "vol2", late, "--allow", "host-a=rw")
    wait_until("it is open", lambda: device(client, "vol2")["state"] == "open")
    check(io.wait(timeout=PATIENCE_S) == 0, io.stdout.read())
    with open(late, "rb") as image:
        check(image.read(64 << 10) == bytes([7]) * (64 << 10), "what had waited was written")
    server.ctl("exports", "remove", "vol2", "--force")
    check(exported(server, "vol2") is None, "it is gone")

    # Who waits for it to end is told that somebody else has taken it back.
    waits = subprocess.Popen([os.path.join(BUILD, "rnbdctl", "rnbdctl"), "--socket", server.control, "drain"],
                             stderr=subprocess.PIPE, text=True)
    check("draining" in waits.stderr.readline(), "it waits")
    server.ctl("drain", "--off")
    check(waits.wait(timeout=PATIENCE_S) == 1 and "let sessions in again" in waits.stderr.read(),
          "that it is over is said")

    # Nobody comes in any more; who is there goes on.
    answer = json.loads(server.ctl("--json", "drain", "--no-wait").stdout)["result"]
    check(answer["draining"] and not answer["done"] and answer["opens"] == 1, answer)
    second = lab.client(server, {"vol1": {}}, name="second", session="host-b",
                        wait_for_devices=False)
    late_comer = server.ctl("drain", "--timeout", "1", ok=False)
    check(late_comer.returncode == 7 and "1 export open" in late_comer.stderr, late_comer.stderr)
    check(len(server.status()["sessions"]) == 1, "no session came in")
    wait_until("it has tried several times", lambda: second.status()["sessions"][0]["paths"][0][
        "reconnects_failed"] >= 5)
    check(len(server.status()["sessions"]) == 1, "none that is turned away is listed")
    about = [line for line in server.log().splitlines() if "host-b" in line]
    check(len(about) == 1 and "turned away: the server is being drained" in about[0],
          f"one line tells it: {about}")
    status = server.status()
    check(status["state"] == "draining" and status["age_s"] < status["uptime_s"],
          "it is being drained, for less time than it runs")
    load.finish()
    check(server.status()["sessions"][0]["id"] == session, "the session is the same")
    check(device(client, "vol1")["errors"] == 0, "no error was seen")
    server.ctl("drain", "--evict")
    check("draining: no session comes in" in server.log(), "it is logged")
    check(not exported(server, "vol1")["opens"], "drained")
    wait_until("the client is told so, though nobody uses it",
               lambda: "the server is being drained" in device(client, "vol1")["reason"])
    io = subprocess.Popen(["qemu-io", "-f", "raw", "-c", "write 0 64k", lab.uri("vol1")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    server.ctl("drain", "--off")
    wait_until("the device is back", lambda: device(client, "vol1")["state"] == "open")
    check(io.wait(timeout=PATIENCE_S) == 0, io.stdout.read())

    # Counters begin again, for stats alone.
    client.ctl("stats", "reset")
    item = json.loads(client.ctl("--json", "stats").stdout)["result"]["items"][0]
    check(item["writes"] == 0 and device(client, "vol1")["writes"] > 0, item)
    check("vol1" in client.ctl("stats", "watch", "--interval", "0.05", "--rounds", "2").stdout, "rates")
    check(client.ctl("top", "--interval", "0.05", "--rounds", "1").stdout.count("\x1b") == 0, "plain")
    client.ctl("unmap", "vol2")
