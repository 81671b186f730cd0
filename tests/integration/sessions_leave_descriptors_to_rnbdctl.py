"""Sessions that take all descriptors they can get leave the server's last ones to rnbdctl and to lost paths: those
beyond are refused with a reason, those that are there come back, and there is room again when some have gone."""
from harness import *

LIMIT = 64
SESSIONS = 60
need("prlimit", "setpriv")
nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []


def sessions(daemon):
    return {one["name"]: one for one in daemon.status()["sessions"]}


def small_server(lab, name):
    # Root would raise the limit.
    return lab.server([], name=name, prefix=[*nobody, "prlimit", f"--nofile={LIMIT}:{LIMIT}"])


def client_of(lab, server, name, count):
    client = Daemon(lab, "rnbd-client", name, {"devices": [], "sessions": wanted(server, count)})
    lab.daemons.append(client)
    client.start()
    return client


def wanted(server, count):
    return [{"name": f"host-{i}", "paths": [{"tcp": f"127.0.0.1:{server.port}"}]} for i in range(count)]


def up(client):
    return {name for name, one in sessions(client).items() if one["state"] == "connected"}


def refused(client):
    return {name for name, one in sessions(client).items() if "too many open files" in json.dumps(one).lower()}


def tries(client, name):
    return sessions(client)[name]["paths"][0]["reconnects_failed"]


def comes_back(client, server, lost):
    """Whose connections are lost has a place, though all others want it meanwhile."""
    path = f"127.0.0.1:{server.port}"
    client.ctl("paths", "disconnect", lost, path)
    wait_until("it is gone", lambda: lost not in sessions(server))
    waiting = {name: tries(client, name) for name in set(sessions(client)) - up(client) - {lost}}
    wait_until("the others have tried", lambda: all(
        name in up(client) or tries(client, name) >= before + 2 for name, before in waiting.items()))
    check(lost not in up(client), "it was told to stay away")
    client.ctl("paths", "reconnect", lost, path, ok=False)
    wait_until("it is back", lambda: lost in up(client))


# Each has its first connection before one has its second.
def all_at_once(lab):
    server = small_server(lab, "server")
    client = client_of(lab, server, "client", SESSIONS)
    wait_until("sessions are refused", lambda: "hardly any descriptors left" in server.log())

    def up_on_both_sides():
        names = up(client)
        return names if len(names) >= 10 and len(sessions(server)) == len(names) else None

    # No more come while they all try again.
    wait_until("some sessions are up", up_on_both_sides)
    wait_until("the others have tried several times", lambda: all(
        one["paths"][0]["reconnects_failed"] >= 3 for name, one in sessions(client).items() if name not in up(client)))
    taken = wait_until("those that are up are at the server", up_on_both_sides)
    check(len(taken) < SESSIONS, "nobody was refused")
    # Some are between two attempts, and some in one.
    wait_until("they have the reason", lambda: refused(client))
    for _ in range(5):
        server.ctl("status")

    comes_back(client, server, min(taken))
    taken = wait_until("they are up", up_on_both_sides)

    # Some go, and others have their places.
    client.config_with(lambda config: config.update(
        sessions=[one for one in config["sessions"] if one["name"] not in taken]))
    client.ctl("config", "apply")
    wait_until("others are up", lambda: len(up(client) - taken) >= 10)
    client.stop()
    server.stop()


def one_after_the_other(lab):
    server = small_server(lab, "small")
    client = client_of(lab, server, "slow", 10)
    wait_until("they are up", lambda: len(up(client)) == 10)
    count = 10
    while not refused(client):
        count += 1
        client.config_with(lambda config: config.update(sessions=wanted(server, count)))
        client.ctl("config", "apply")
        wait_until("it is up, or was refused", lambda: len(up(client)) == count or refused(client))
    comes_back(client, server, "host-0")
    server.ctl("status")
    client.stop()
    server.stop()


with Lab() as lab:
    os.chmod(lab.folder, 0o777)
    all_at_once(lab)
    one_after_the_other(lab)
