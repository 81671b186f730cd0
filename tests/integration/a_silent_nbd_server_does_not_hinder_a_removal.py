"""An export goes although its NBD server is connected and silent: what that has not answered fails, and
whoever asked for the removal is told what may be lost. With a write under way, and with nothing but the
last flush; other exports go on meanwhile."""
import errno

from harness import *
from nbd_clients import *
from other_nbd_servers import *

with Lab() as lab:
    def removal_of(name, *options):
        return subprocess.Popen(
            [os.path.join(BUILD, "rnbdctl", "rnbdctl"), "--socket", server.control, "--timeout",
             f"{PATIENCE_S}s", "exports", "remove", name, *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def told(removal):
        text = removal.communicate(timeout=PATIENCE_S)[0]
        check(removal.returncode == 1, f"{removal.returncode}: {text}")
        check("last flush failed" in text and "may be lost" in text, text)

    silent = {name: serve(lab, name) for name in ("busy", "idle")}
    server = lab.server([export_of(lab, "busy"), export_of(lab, "idle"), export("file", lab.path("f"), "1MiB")])
    lab.client(server, {"busy": {}, "idle": {}, "file": {}})
    h = {name: connected(lab, name) for name in ("busy", "idle", "file")}
    for name in silent:
        h[name].pwrite(b"a" * 4096, 0)
    for process in silent.values():
        process.send_signal(signal.SIGSTOP)
    cookie = h["busy"].aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b"c" * 4096)), 4096)
    wait_until("the write is at the server",
               lambda: sum(s["in_flight"] for s in server.status()["sessions"]) == 1)
    busy = lambda: next(e for e in server.status()["exports"] if e["name"] == "busy")
    wait_until("status says so", lambda: busy()["reason"].endswith("the NBD server does not answer"))
    wait_until("the log says so", lambda: "busy: requests wait: " in server.log())
    check("idle: requests wait" not in server.log(), "of one that nothing is asked of nobody knows")
    removals = [removal_of("busy", "--force"), removal_of("idle", "--force")]
    leaving = wait_until("it is being removed", lambda: next(
        (e for e in server.status()["exports"] if e["name"] == "busy" and e["state"] == "removing"), None))
    check([one["session"] for one in leaving["opens"]] == ["host-a"] and leaving["away"] == [],
          f"who has it open is listed once: {leaving}")
    for number in range(100):
        h["file"].pwrite(number.to_bytes(2, "little") * 256, number * 512)
    for removal in removals:
        told(removal)
    check([e["name"] for e in server.status()["exports"]] == ["file"], "both are gone")
    lines = [line for line in server.log().splitlines() if "is not waited for any longer" in line]
    check(len(lines) == 2, lines)
    wait_until("the write has an answer",
               lambda: h["busy"].poll(1000) and h["busy"].aio_peek_command_completed() == cookie)
    check(error_of(h["busy"].aio_command_completed, cookie) == errno.EIO, "it is an error")
    # They can be added again, at the same place.
    for name, process in silent.items():
        process.send_signal(signal.SIGCONT)
    server.ctl("config", "apply")
    wait_until("both are ready", lambda: all(e["state"] == "ready" for e in server.status()["exports"])
               and len(server.status()["exports"]) == 3)
