"""A listener whose successor cannot listen stays, by apply and by SIGHUP; where both have the same port it is back."""
from harness import *

OUTSIDE = "203.0.113.1"  # of documentation: no machine has it


def listening(server):
    return [one["address"] for one in server.status()["listen"]]


def heard(address):
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
        return True
    except OSError:
        return False


def taken_by_another(host, port=0):
    other = socket.socket()
    other.bind((host, port))
    other.listen()
    return other, "%s:%d" % other.getsockname()


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    old = f"127.0.0.1:{server.port}"

    def listen_on(*addresses):
        server.config_with(lambda config: config.update(listen=[{"tcp": one} for one in addresses]))

    def refused(why):
        failed = server.ctl("config", "apply", ok=False)
        check(failed.returncode == 1 and why in failed.stdout, failed.stdout + failed.stderr)
        check(listening(server) == [old] and heard(old), f"the old one is there: {listening(server)}")
        rows = server.ctl("config", "diff", ok=False).stdout
        check("rnbdctl" not in rows.split("WHAT", 1)[1], f"it is nobody's doing: {rows}")
        return failed.stdout

    other, taken = taken_by_another("127.0.0.1")
    listen_on(taken)
    said = refused(f"cannot listen on tcp {taken}")
    check(f"it stays, because tcp {taken} does not open" in said, said)
    listen_on(f"{OUTSIDE}:{server.port}")
    refused(f"cannot listen on tcp {OUTSIDE}")

    # SIGHUP, with one that comes and one that does not.
    new = f"127.0.0.1:{free_port()}"
    listen_on(new, taken)
    lines = server.log().count("configuration: applied")
    server.process.send_signal(signal.SIGHUP)
    wait_until("it has read it", lambda: server.log().count("configuration: applied") > lines)
    check(listening(server) == [old, new] and heard(old) and heard(new), listening(server))
    listen_on(old)
    server.ctl("config", "apply")
    check(listening(server) == [old] and heard(old), listening(server))

    # One that takes the old one's port as well: another process has a part of it.
    part, where = taken_by_another("127.0.0.2", server.port)
    listen_on(f"0.0.0.0:{server.port}")
    refused(f"cannot listen on tcp 0.0.0.0:{server.port}")
    part.close()
    server.ctl("config", "apply")
    check(listening(server) == [f"0.0.0.0:{server.port}"] and heard(old), listening(server))

    other.close()
    listen_on(taken)
    server.ctl("config", "apply")
    check(listening(server) == [taken] and heard(taken) and not heard(old), listening(server))
    check("same" in server.ctl("--json", "config", "diff").stdout, "nothing is left to do")
