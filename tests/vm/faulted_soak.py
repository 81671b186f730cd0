"""In the guest: one session over two soft-RoCE wires (prefer) and TCP (standby), under random faults.

Verified I/O runs without a pause while every few seconds one wire, or both, get a fault: packets that
are lost, late, or out of order; a wire that is cut; a device of the client or of the server that is
deleted and comes back. There is no error; requests go over TCP only while no RDMA path is up; and
the devices get back all that was taken of them, during the session and at its end.

  RNBD_VM=1 tests/vm/run -m 1536 -t 4000 env RNBD_BUILD=build-release python3 tests/vm/faulted_soak.py 1800

The argument is for how many seconds there are faults (60). RNBD_SEED repeats a run's faults.
"""
import contextlib

from guest import *
from multipath_lab import *

import fio  # found by what guest adds to the path

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
SEED = int(os.environ.get("RNBD_SEED", random.randrange(1 << 32)))
WIRES = (0, 1)
CLIENT = {wire: f"10.{wire}.0.1" for wire in WIRES}
SERVER = {wire: f"10.{wire}.0.2" for wire in WIRES}
# What a daemon may have more than after the first rounds: on the heap, and in all, with the payload
# buffers that come into memory when a large I/O uses them for the first time.
TOLERANCE_KIB = {"heap": 1024, "resident": 32 * 1024}


class Network:
    """Ends of wire i: a{i} with the device rxa{i} (client), b{i} with rxb{i} (server); sa{i} and sb{i}
    are the ports of the switch between them."""

    def __init__(self):
        run("bash", "-c", f". {HERE}/interop_lib && two_wires")
        self.shaped = set()

    def shape(self, ports, *words):
        for port in ports:
            run("tc", "qdisc", "replace", "dev", port, "root", "netem", *words)
            self.shaped.add(port)

    def mend(self):
        for port in self.shaped:
            run("tc", "qdisc", "del", "dev", port, "root")
        self.shaped = set()

    # What can happen to a wire; `dice` says how badly.

    def lossy(self, wire, dice):
        self.shape(self.some_ports(wire, dice), "loss", f"{dice.randint(1, 30)}%")

    def late(self, wire, dice):
        self.shape(self.some_ports(wire, dice), "delay", f"{dice.randint(2, 60)}ms",
                   f"{dice.randint(0, 20)}ms")

    def out_of_order(self, wire, dice):
        self.shape(self.some_ports(wire, dice), "delay", "5ms", "reorder", f"{dice.randint(5, 50)}%",
                   "50%")

    def repeated_and_spoilt(self, wire, dice):
        self.shape(self.some_ports(wire, dice), "duplicate", f"{dice.randint(1, 20)}%", "corrupt",
                   f"{dice.randint(1, 5)}%")

    def cut(self, wire, _):
        self.shape((f"sa{wire}", f"sb{wire}"), "loss", "100%")

    def cut_one_way(self, wire, dice):
        self.shape((dice.choice(("sa", "sb")) + str(wire),), "loss", "100%")

    def client_device_gone(self, wire, _):
        self.delete_device(f"a{wire}")

    def server_device_gone(self, wire, _):
        self.delete_device(f"b{wire}")

    @staticmethod
    def some_ports(wire, dice):
        return dice.choice(((f"sa{wire}",), (f"sb{wire}",), (f"sa{wire}", f"sb{wire}")))

    def delete_device(self, end):
        """It ends when the daemon has let go of the device."""
        run("rdma", "link", "delete", f"rx{end}", timeout=SLOW_S)
        self.missing = getattr(self, "missing", []) + [end]

    def heal(self):
        self.mend()
        for end in getattr(self, "missing", []):
            run("rdma", "link", "add", f"rx{end}", "type", "rxe", "netdev", end)
        self.missing = []


FAULTS = ("lossy", "late", "out_of_order", "repeated_and_spoilt", "cut", "cut_one_way",
          "client_device_gone", "server_device_gone")


class Paths:
    """The client's paths, looked at all the time: TCP is idle while an RDMA path is up."""

    def __init__(self, client):
        self.client = client
        self.last = None
        self.samples = self.with_rdma = 0

    def sample(self):
        paths = self.client.status()["sessions"][0]["paths"]
        rdma = {p["destination"]: p["reconnects"] for p in paths
                if p["fabric"] == "rdma" and p["state"] == "connected"
                and "the server ends it" not in p["reason"]}
        tcp = next(p for p in paths if p["fabric"] == "tcp")
        rdma_sent = sum(p["sent"] for p in paths if p["fabric"] == "rdma")
        now = {"rdma": rdma, "tcp_sent": tcp["sent"], "rdma_sent": rdma_sent,
               "tcp": tcp["state"], "tcp_reconnects": tcp["reconnects"]}
        if self.last is not None:
            self.samples += 1
            # The same connection at both ends of this while was there in between too.
            stayed = [d for d, n in rdma.items() if self.last["rdma"].get(d) == n]
            if stayed:
                self.with_rdma += 1
                check(now["tcp_sent"] == self.last["tcp_sent"],
                      f"requests went over TCP while {stayed} was up: {self.last} {now}")
        self.last = now
        return now

    def watch_for(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.sample()
            time.sleep(0.2)

    def wait_until_up(self, count):
        wait_until(f"{count} RDMA paths are up", lambda: len(self.sample()["rdma"]) == count, SLOW_S)


def start_pair(lab):
    server = Daemon(lab, "rnbd-server", "server", {
        "listen": [{"rdma": f"{SERVER[0]}:1235"}, {"rdma": f"{SERVER[1]}:1235"},
                   {"tcp": "127.0.0.1:1235"}],
        "queue_depth": 64,
        "heartbeat": {"interval": "1s", "timeout": "5s"},
        "exports": [export(name, lab.path(f"{name}.img"), "64MiB", session="guest")
                    for name in ("numbered", "fio")]})
    client = Daemon(lab, "rnbd-client", "client", {
        "sessions": [{
            "name": "guest",
            "paths": [{"rdma": f"{CLIENT[0]}@{SERVER[0]}:1235"},
                      {"rdma": f"{CLIENT[1]}@{SERVER[1]}:1235"},
                      {"tcp": "127.0.0.1:1235", "priority": "standby"}],
            "heartbeat": {"interval": "1s", "timeout": "5s"}}],
        "devices": [{"name": name, "volume": name, "session": "guest", "access": "rw",
                     "nbd": f"unix:{lab.socket('client', name)}"} for name in ("numbered", "fio")]})
    lab.daemons += [server, client]
    server.start()
    client.start()
    wait_until("the devices are open", lambda: all(
        d["state"] == "open" for d in client.status()["devices"]), SLOW_S)
    return server, client


def at_rest(daemons):
    """What is in use while all paths are up: on the devices, and of memory."""
    memory = {f"{daemon.name}'s {kind}": of(daemon) for daemon in daemons
              for kind, of in (("heap", heap_kib), ("resident", resident_kib))}
    return rdma_resources(), memory


def both_cut(net, paths, judge):
    """No RDMA path is left: requests go over TCP, and back when there is one."""
    for wire in WIRES:
        net.cut(wire, None)
    paths.wait_until_up(0)
    before = paths.sample()
    judge.wait_for_progress(20)
    check(paths.sample()["tcp_sent"] > before["tcp_sent"], "nothing went over TCP")
    net.heal()
    paths.wait_until_up(len(WIRES))
    before = paths.sample()
    judge.wait_for_progress(20)
    check(paths.sample()["rdma_sent"] > before["rdma_sent"], "nothing went over RDMA")


@contextlib.contextmanager
def told_if_it_fails(server, client):
    """The daemons' logs are long: without what NBD's clients do."""
    try:
        yield
    except BaseException:
        for daemon in (server, client):
            lines = [line for line in daemon.log().splitlines() if "rnbd.nbd" not in line]
            print(f"--- {daemon.name}", *lines[-80:], sep="\n")
        print(client.ctl("status", ok=False).stdout)
        for _ in range(2):  # what still changes?
            time.sleep(8)
            print(run("bash", "-c", "cd /sys/class/infiniband && grep -r -H . */ports/1/"
                      "{hw_counters,cm_*} | grep -v ':0$'", ok=False).stdout)
        print(run("tc", "qdisc", "show").stdout, run("rdma", "link").stdout,
              run("rdma", "resource").stdout, run("rdma", "resource", "show", "qp").stdout,
              run("dmesg").stdout[-1500:])
        raise


print(f"RNBD_SEED={SEED}, {SECONDS} s of faults", flush=True)
need_root()
need("fio", "rdma", "tc", "ip")
dice = random.Random(SEED)
net = Network()
before = rdma_resources()
with Lab() as lab:
    lab.cleanups.append(net.heal)
    server, client = start_pair(lab)
    with told_if_it_fails(server, client):
        paths = Paths(client)
        paths.wait_until_up(len(WIRES))
        judge = Judge(lab, lab.uri("numbered"), blocks=512, seed=SEED, depth=16)
        passes = Passes(*fio.arguments(lab.uri("fio"), 10, 4096, "48m"), folder=lab.folder)
        lab.cleanups.append(lambda: setattr(passes, "stopping", True))
        done = {fault: 0 for fault in FAULTS}
        rounds = requests = all_down = 0
        longest_ms = 0.0
        early = None
        end = time.monotonic() + SECONDS
        both_cut(net, paths, judge)
        while time.monotonic() < end or rounds < len(FAULTS):
            # Each kind comes, and then they come at random.
            faults = [FAULTS[rounds] if rounds < len(FAULTS) else dice.choice(FAULTS)]
            wires = [dice.choice(WIRES)]
            if dice.random() < 0.3:
                faults.append(dice.choice(FAULTS))
                wires.append(1 - wires[0])
            for fault, wire in zip(faults, wires):
                getattr(net, fault)(wire, dice)
                done[fault] += 1
            paths.watch_for(dice.uniform(0.5, 6))
            all_down += not paths.last["rdma"]
            net.heal()
            if dice.random() < 0.5:
                paths.wait_until_up(len(WIRES))
            paths.watch_for(dice.uniform(0, 3))
            figures = judge.mark()
            requests += figures["reads"] + figures["writes"]
            longest_ms = max(longest_ms, figures["longest_ms"])
            passes.check()
            rounds += 1
            if rounds == len(FAULTS):
                paths.wait_until_up(len(WIRES))
                early = at_rest((server, client))
            if rounds % 20 == 0:
                print(f"{rounds} rounds, {requests} requests, {passes.done} passes, resident: server "
                      f"{resident_kib(server)} KiB, client {resident_kib(client)} KiB", flush=True)
        both_cut(net, paths, judge)
        passes.finish()
        judge.finish()
        late = at_rest((server, client))
        for device in client.status()["devices"]:
            check(device["errors"] == 0, f"requests of {device['name']} failed")
        # An id whose peer did not answer its farewell stays for some seconds.
        wait_until(f"as many resources as in the beginning, which were {early[0]}, now {rdma_resources()}",
                   lambda: rdma_resources() == early[0], 60)
    check(client.stop() == 0, "rnbd-client")
    check(server.stop() == 0, "rnbd-server")
    after = rdma_resources()
    print(f"{rounds} rounds: {done}; no RDMA path was left in {all_down}; {paths.samples} looks at "
          f"the paths, {paths.with_rdma} with one over RDMA that stayed")
    print(f"{requests} checked requests, the longest took {longest_ms:.0f} ms; {passes.done} passes "
          "of fio")
    print(f"resources before: {before}\nin the session: {early[0]}\nafter: {after}")
    print(f"memory in KiB with all paths up, in the beginning: {early[1]}, at the end: {late[1]}")
    check(after == before, f"left behind: {after}, before: {before}")
    if rounds >= 5 * len(FAULTS):
        for name in late[1]:
            check(late[1][name] <= early[1][name] + TOLERANCE_KIB[name.split()[-1]],
                  f"{name} has grown")
print("ok")
