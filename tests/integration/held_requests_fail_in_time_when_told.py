"""rnbdctl hold bounds the time without a path, from then on: what waits fails, what was acknowledged is there; with a server nothing fails.

What rnbd-client-down.service does at the beginning of a shutdown.
"""
import errno

from harness import *
from nbd_clients import *

LIMIT_S = 3
BLOCK = 4096


def buffer(letter):
    return nbd.Buffer.from_bytearray(bytearray(letter * BLOCK))


def is_answered(h, cookie):
    h.poll(10)
    return h.aio_command_completed(cookie)


def answer_of(h, cookie):
    """0 or the errno that the write ends with."""
    result = []

    def ended():
        try:
            result.append(0 if is_answered(h, cookie) else None)
        except nbd.Error as error:
            result.append(error.errnum)
        return result[-1] is not None
    wait_until("it is answered", ended)
    return result[-1]


def still_held(h, cookie, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        check(not is_answered(h, cookie), "it is answered")
    return True


def hold(client, *words):
    return json.loads(client.ctl("--json", "hold", *words).stdout)["result"]


def session(client, *words):
    return hold(client, *words)["sessions"][0]


def state_of(client, device="disk"):
    return next(d["state"] for d in client.status()["devices"] if d["name"] == device)


def lose(server, client):
    server.kill()
    wait_until("the client has noticed", lambda: state_of(client) != "open")


def come_back(server, client):
    server.start()
    wait_until("the device is open", lambda: state_of(client) == "open")


def with_a_server_nothing_fails(lab, client):
    h = connected(lab, "gated")
    open(lab.path("gate"), "w").close()
    slow = h.aio_pwrite(buffer(b"S"), 0)
    check(hold(client, LIMIT_S)["limit_s"] == LIMIT_S, "it is set")
    check(session(client) == {"name": "host-a", "hold_time_s": LIMIT_S, "hold_left_s": None, "hold_is_over": False},
          "shown")
    still_held(h, slow, 2 * LIMIT_S)
    os.unlink(lab.path("gate"))
    check(answer_of(h, slow) == 0 and h.pread(BLOCK, 0) == b"S" * BLOCK, "slow, but done")
    hold(client, "--off")


def what_waits_fails_in_time(lab, server, client):
    h = connected(lab, "disk")
    h.pwrite(b"A" * BLOCK, 0)
    h.flush()
    client.ctl("map", "absent", "from", "host-a")
    lose(server, client)
    held = h.aio_pwrite(buffer(b"B"), BLOCK)
    # For ever, as is the default; longer than the limit that comes.
    still_held(h, held, 2 * LIMIT_S)
    check(client.status()["sessions"][0]["held"] == 1, client.status()["sessions"])
    check(session(client) == {"name": "host-a", "hold_time_s": None, "hold_left_s": None, "hold_is_over": False},
          "for ever")
    limited = session(client, PATIENCE_S)
    check(limited["hold_time_s"] == PATIENCE_S and 0 < limited["hold_left_s"] <= PATIENCE_S, f"it has an end: {limited}")
    explained = json.loads(client.ctl("--json", "explain", "disk").stdout)["result"]["requests"]
    check(explained[0]["stage"] == "no_path" and "fail" in
          {one["event"] for one in explained[0]["next"]}, explained)
    told = time.monotonic()
    limited = session(client, LIMIT_S)
    # Whatever else has waited since before.
    check(limited["hold_time_s"] == LIMIT_S and 0 < limited["hold_left_s"] <= LIMIT_S, f"its time is given anew: {limited}")
    check(answer_of(h, held) == errno.EIO, "it fails")
    check(time.monotonic() - told >= LIMIT_S, "not before")
    check(error_of(h.pwrite, b"C" * BLOCK, BLOCK) == errno.EIO, "what comes fails, too")
    check(error_of(h.flush) == errno.EIO, "a flush as well")
    check(session(client)["hold_is_over"], "that is shown")
    check(session(client, "--off")["hold_is_over"], "and stays so until there is a path")
    session(client, LIMIT_S)
    come_back(server, client)
    check(h.pread(BLOCK, 0) == b"A" * BLOCK, "what was acknowledged is there")
    check(h.pread(BLOCK, BLOCK) == bytes(BLOCK), "what failed is not")
    h.pwrite(b"D" * BLOCK, BLOCK)
    check(h.pread(BLOCK, BLOCK) == b"D" * BLOCK, "and it goes on")
    check(session(client)["hold_is_over"], "but for the one that is still not there")
    client.ctl("unmap", "absent")
    check(not session(client)["hold_is_over"], "all is well")


def it_stays_until_told(lab, server, client):
    """The limit is still there: of the next loss, of changed and of new sessions."""
    client.config_with(lambda config: config["sessions"][0].update(
        hold_time="1h", fail_fast_time="30min"))
    client.ctl("config", "apply")
    check(session(client)["hold_time_s"] == LIMIT_S, "less than the files say")
    client.config_with(lambda config: config["sessions"][0].update(
        hold_time="500ms", fail_fast_time="500ms"))
    client.ctl("config", "apply")
    check(session(client)["hold_time_s"] == 0.5, "the files say less")
    client.config_with(lambda config: [config["sessions"][0].pop(key)
                                       for key in ("hold_time", "fail_fast_time")])
    client.ctl("config", "apply")
    other = lab.server([export("more", lab.path("more.img"), "1MiB", session="host-b")], name="other")
    client.ctl("map", "more", "--session", "host-b", "--path", f"127.0.0.1:{other.port}")
    check([(one["name"], one["hold_time_s"]) for one in hold(client)["sessions"]] ==
          [("host-a", LIMIT_S), ("host-b", LIMIT_S)], "both")
    client.ctl("unmap", "more")
    h = connected(lab, "disk")
    lose(server, client)
    held = h.aio_pwrite(buffer(b"E"), 0)
    check(answer_of(h, held) == errno.EIO, "the next loss")
    come_back(server, client)

    check(f"at most {LIMIT_S} s" in client.ctl("hold").stdout, "shown to people")
    check("as configured" in client.ctl("hold", "--off").stdout, "taken back")
    lose(server, client)
    held = h.aio_pwrite(buffer(b"F"), 0)
    still_held(h, held, 2 * LIMIT_S)
    come_back(server, client)
    check(answer_of(h, held) == 0 and h.pread(BLOCK, 0) == b"F" * BLOCK, "it waited")


with Lab() as lab:
    allow = [{"session": "host-a", "access": "rw"}]
    server = lab.server([
        export("disk", lab.path("disk.img"), "1MiB"),
        {"name": "gated", "allow": allow, "storage": {
            "kind": "delay", "of": {"kind": "memory", "size": "1MiB"}, "gate": lab.path("gate")}}])
    client = lab.client(server, {"disk": {}, "gated": {}})
    check(hold(client)["limit_s"] is None, "nothing is limited")
    for words in (("5", "--off"), ("-1",), ("x",), ("86401",)):
        check(client.ctl("hold", *words, ok=False).returncode == 2, words)
    with_a_server_nothing_fails(lab, client)
    what_waits_fails_in_time(lab, server, client)
    it_stays_until_told(lab, server, client)
    hold(client, LIMIT_S)
    client.stop()
    client.start()
    check(hold(client)["limit_s"] is None, "it ends with the daemon")
