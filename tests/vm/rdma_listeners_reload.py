"""In the guest, under soft_roce: RDMA listeners stay, come and go by reloads, while verified I/O runs over RDMA.

Paths that came by a listener outlive it; one that comes back is found again by the paths that need it.
"""

from guest import *
from configurations import *
from multipath_lab import *

need_root()
need("rdma", "ip")
HOSTS = (os.environ["RNBD_RDMA_HOST"], os.environ["RNBD_RDMA_OTHER_HOST"])
# Nobody has it, until ip address add.
LATE_HOST = "10.1.9.1"
SEED = int(os.environ.get("RNBD_SEED", random.randrange(1 << 32)))


def door(host, port=1235, **options):
    return dict({"rdma": f"{host}:{port}"}, **options)


class Pair:
    """A server, a client, and what their files say."""

    def __init__(self, lab):
        self.lab, self.listen, self.paths = lab, [door(HOSTS[0])], [self.path(0)]
        self.server = Daemon(lab, "rnbd-server", "server", self.server_file())
        self.client = Daemon(lab, "rnbd-client", "client", self.client_file())
        lab.daemons += [self.server, self.client]
        self.server.start()
        self.client.start()
        wait_until("the device is open", lambda: self.client.status()["devices"][0]["state"] == "open", SLOW_S)
        self.judge = Judge(lab, lab.uri("vol1"), blocks=512, seed=SEED, depth=8)
        self.sessions = self.server_sessions()

    @staticmethod
    def path(number):
        return {"rdma": f"{HOSTS[number]}@{HOSTS[number]}:1235"}

    @staticmethod
    def label(number):
        return f"rdma:{Pair.path(number)['rdma']}"

    def server_file(self):
        return {"listen": self.listen, "queue_depth": 64, "heartbeat": {"interval": "1s", "timeout": "10s"},
                "exports": [export("vol1", self.lab.path("vol1.img"), "64MiB", session="guest")]}

    def client_file(self):
        return {"sessions": [{"name": "guest", "paths": self.paths,
                              "heartbeat": {"interval": "1s", "timeout": "10s"}}],
                "devices": [{"name": "vol1", "volume": "vol1", "session": "guest", "access": "rw",
                             "nbd": f"unix:{self.lab.socket('client', 'vol1')}"}]}

    def server_sessions(self):
        return [(s["name"], s["id"]) for s in self.server.status()["sessions"]]

    def listening(self):
        return [(one["fabric"], one["address"], one["clients"]) for one in self.server.status()["listen"]]

    def path_states(self):
        return {p["label"]: (p["state"], p["reconnects"]) for p in self.client.status()["sessions"][0]["paths"]}

    def apply(self, *words):
        """What the files of the server say now: the changes."""
        write_config(self.server, self.server_file())
        document = config(self.server, "apply", *words)[0]
        check(document["state"] == "applied", document)
        return changes(document)

    def reload(self):
        write_config(self.server, self.server_file())
        return reload(self.server)

    def goes_on(self):
        self.judge.wait_for_progress(40)
        check(self.server_sessions() == self.sessions, f"{self.sessions}, now {self.server_sessions()}")
        check(self.client.status()["devices"][0]["errors"] == 0, "requests failed")

    def wait_for_path(self, number, state):
        wait_until(f"path {number} is {state}",
                   lambda: (self.path_states()[self.label(number)][0] == "connected") == (state == "connected"), SLOW_S)


def one_comes_one_stays(pair):
    step("a second listener comes, by SIGHUP: the first one's path notices nothing")
    before = pair.path_states()
    pair.listen = [door(HOSTS[0]), door(HOSTS[1]), {"tcp": "127.0.0.1:1235"}]
    log = pair.reload()
    check(f"listener rdma {HOSTS[1]}:1235: added" in log and "listener tcp 127.0.0.1:1235: added" in log, log)
    check(pair.listening() == [("rdma", f"{HOSTS[0]}:1235", "extended"), ("rdma", f"{HOSTS[1]}:1235", "extended"),
                               ("tcp", "127.0.0.1:1235", "any")], pair.listening())
    pair.goes_on()
    check(pair.path_states() == before, (before, pair.path_states()))

    step("a path to it comes, by a reload of the client")
    pair.paths = [pair.path(0), pair.path(1)]
    write_config(pair.client, pair.client_file())
    check(changes(config(pair.client, "apply")[0]) == {f"path guest {pair.label(1)}": "added"}, "changes")
    pair.wait_for_path(1, "connected")
    pair.goes_on()
    check(pair.path_states()[pair.label(0)] == before[pair.label(0)], "the first path")


def one_goes_and_comes_back(pair):
    step("the first listener goes: its path stays")
    before = pair.path_states()
    pair.listen = [door(HOSTS[1])]
    check(pair.apply() == {f"listener rdma {HOSTS[0]}:1235": "removed", "listener tcp 127.0.0.1:1235": "removed"},
          "changes")
    check([where for _, where, _ in pair.listening()] == [f"{HOSTS[1]}:1235"], pair.listening())
    pair.goes_on()
    check(pair.path_states() == before, (before, pair.path_states()))

    step("its path is lost: nobody is there to come back to, and I/O goes over the other")
    again = pair.client.ctl("paths", "reconnect", "guest", pair.label(0), "--timeout", "2", ok=False)
    check(again.returncode in (1, 7), f"{again.returncode}: {again.stdout}{again.stderr}")
    pair.wait_for_path(0, "lost")
    pair.goes_on()
    check(pair.path_states()[pair.label(0)][0] != "connected", pair.path_states())
    check(pair.path_states()[pair.label(1)] == before[pair.label(1)], "the other path")

    step("the listener comes back: so does the path, by itself")
    pair.listen = [door(HOSTS[1]), door(HOSTS[0])]
    pair.reload()
    pair.wait_for_path(0, "connected")
    pair.goes_on()


def a_kernel_listener(pair):
    step("a listener for kernel clients comes, changes its rules, and becomes an ordinary one")
    before = pair.path_states()
    rules = {"allow": [{"session": "host-k", "address": "10.1.0.0/16"}]}
    name = f"listener rdma {HOSTS[1]}:1234"
    pair.listen = [door(HOSTS[0]), door(HOSTS[1]), door(HOSTS[1], 1234, kernel=rules)]
    check(pair.apply() == {name: "added"}, "changes")
    check(("rdma", f"{HOSTS[1]}:1234", "kernel") in pair.listening(), pair.listening())
    rules["allow"].append({"session": "host-l"})
    check(pair.apply() == {name: "changed"}, "changes")
    pair.listen[2] = door(HOSTS[1], 1234)
    check(pair.apply() == {name: "replaced"}, "changes")
    check(("rdma", f"{HOSTS[1]}:1234", "extended") in pair.listening(), pair.listening())
    pair.listen.pop()
    check(pair.apply() == {name: "removed"}, "changes")
    pair.goes_on()
    check(pair.path_states() == before, (before, pair.path_states()))


def not_confirmed(pair):
    step("all listeners but one go, and nobody confirms it: they are back")
    before = pair.path_states()
    pair.listen = [door(HOSTS[1], 1236)]
    check(len(pair.apply("--confirm-within", "1s")) == 3, "changes")
    wait_until("it is taken back", lambda: sorted(where for _, where, _ in pair.listening()) ==
               sorted(f"{host}:1235" for host in HOSTS), SLOW_S)
    wait_until("the daemon takes another change", lambda: "taken back" in pair.server.log(), SLOW_S)
    pair.listen = [door(HOSTS[0]), door(HOSTS[1])]
    pair.goes_on()
    check(pair.path_states() == before, (before, pair.path_states()))


def where_no_device_is(pair):
    step("a listener where no device is: that one fails, and comes when the address is there")
    pair.listen.append(door(LATE_HOST))
    write_config(pair.server, pair.server_file())
    document, code = config(pair.server, "apply", ok=False)
    check(code == 1 and document["state"] == "incomplete", (code, document))
    failed = [one for one in document["objects"] if one["failure"]]
    check(len(failed) == 1 and f"no RDMA device has the address {LATE_HOST}" in failed[0]["failure"], failed)
    pair.goes_on()
    run("ip", "address", "add", f"{LATE_HOST}/32", "dev", os.environ["RNBD_RDMA_WIRE"])
    check(pair.apply() == {f"listener rdma {LATE_HOST}:1235": "added"}, "changes")
    pair.goes_on()
    pair.listen.pop()
    pair.apply()
    run("ip", "address", "del", f"{LATE_HOST}/32", "dev", os.environ["RNBD_RDMA_WIRE"])


def many_times(pair, rounds=10):
    step(f"{rounds} reloads, in which the listeners that are not needed come and go")
    before, dice = pair.path_states(), random.Random(SEED)
    for _ in range(rounds):
        pair.listen = [door(HOSTS[1])] + [one for one in (door(HOSTS[0]), door(HOSTS[0], 1236), door(HOSTS[1], 1237))
                                          if dice.random() < 0.5]
        pair.apply()
        check(sorted(where for _, where, _ in pair.listening()) == sorted(one["rdma"] for one in pair.listen),
              pair.listening())
    pair.goes_on()
    check(pair.path_states() == before, (before, pair.path_states()))


print(f"RNBD_SEED={SEED}", flush=True)
with Lab() as lab:
    pair = Pair(lab)
    one_comes_one_stays(pair)
    one_goes_and_comes_back(pair)
    a_kernel_listener(pair)
    not_confirmed(pair)
    where_no_device_is(pair)
    many_times(pair)
    pair.judge.finish()
    check(pair.client.stop() == 0, "rnbd-client")
    check(pair.server.stop() == 0, "rnbd-server")
print("ok")
