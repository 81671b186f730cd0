"""Sessions that take all descriptors they can get leave the server's last ones to rnbdctl and to lost paths: those
beyond are refused with a reason, those that are there come back, and there is room again when some have gone."""
from harness import *

LIMIT = 64
SESSIONS = 60
need("prlimit", "setpriv")
nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []


def sessions(daemon):
    return {one["name"]: one for one in daemon.status()["sessions"]}


with Lab() as lab:
    os.chmod(lab.folder, 0o777)
    # Root would raise the limit.
    server = lab.server([], prefix=[*nobody, "prlimit", f"--nofile={LIMIT}:{LIMIT}"])
    client = Daemon(lab, "rnbd-client", "client", {"devices": [], "sessions": [
        {"name": f"host-{i}", "paths": [{"tcp": f"127.0.0.1:{server.port}"}]} for i in range(SESSIONS)]})
    lab.daemons.append(client)
    client.start()
    wait_until("sessions are refused", lambda: "hardly any descriptors left" in server.log())

    def up():
        return {name for name, one in sessions(client).items() if one["state"] == "connected"}

    # No more come while they all try again.
    wait_until("some sessions are up", lambda: len(up()) >= 10)
    time.sleep(3)
    taken = up()
    check(len(taken) < SESSIONS, "nobody was refused")
    check(len(sessions(server)) == len(taken), f"{len(sessions(server))} sessions at the server, {len(taken)} at the client")
    refused = next(one for name, one in sessions(client).items() if name not in taken)
    check("too many open files" in json.dumps(refused).lower(), f"no reason: {refused}")
    for _ in range(5):
        server.ctl("status")

    # Whose connections are lost come back before others come.
    for name in taken:
        client.ctl("paths", "reconnect", name, ok=False)
    wait_until("they are back", lambda: taken <= up())
    server.ctl("status")

    # Some go, and others have their places.
    client.config_with(lambda config: config.update(
        sessions=[one for one in config["sessions"] if one["name"] not in taken]))
    client.ctl("config", "apply")
    wait_until("others are up", lambda: len(up()) >= 10)
    client.stop()
    server.stop()
