"""Two hosts with several cables between them, and all that can happen to a cable.

Cable i has the addresses 10.99.i.1 (server) and 10.99.i.2 (client), or fd99:i::1 and ::2.
"""
import json
import os
import random
import select
import signal
import subprocess
import time

from fio import VerifiedLoad
from harness import BUILD, PATIENCE_S, Daemon, Lab, check, export, free_port, need, need_root, \
    run, skip, wait_to_reach, wait_until

# The profile for short stalls that the documentation gives.
TUNED = {"heartbeat": {"interval": "100ms", "timeout": "400ms"}, "request_deadline": "200ms",
         "probe_timeout": "150ms"}
# Those that a machine which is busy with something else keeps, too: where a path that was not cut has to stay.
STEADY = {"heartbeat": {"interval": "500ms", "timeout": "6s"}, "request_deadline": "500ms", "probe_timeout": "4s"}


class Network:
    """Namespaces and links; faults by name, each on one link at a time."""

    def __init__(self, lab, links=2, six=()):
        need("nft", "ip")
        need_root()
        tag = f"rnbd{os.getpid() % 100000}"
        self.server, self.client = tag + "s", tag + "c"
        self.links, self.six = links, set(six)
        self.broken = {}  # link: how to heal it
        if run("ip", "netns", "add", self.server, ok=False).returncode != 0:
            skip("cannot make network namespaces here")
        lab.cleanups.append(lambda: run("ip", "netns", "del", self.server, ok=False))
        if run("ip", "netns", "exec", self.server, "true", ok=False).returncode != 0:
            skip("cannot enter network namespaces here")
        run("ip", "netns", "add", self.client)
        lab.cleanups.append(lambda: run("ip", "netns", "del", self.client, ok=False))
        if run(*self.inside(self.server), "nft", "add table inet probe; delete table inet probe",
               ok=False).returncode != 0:
            skip("cannot set firewall rules here")
        for space in self.spaces():
            run("ip", "-n", space, "link", "set", "lo", "up")
            run(*self.inside(space), "sh", "-c",
                "echo 1 >/proc/sys/net/ipv6/conf/default/keep_addr_on_down; "
                "echo 0 >/proc/sys/net/ipv4/icmp_ratelimit", ok=False)
        for link in range(links):
            run("ip", "link", "add", f"link{link}", "netns", self.server, "type", "veth", "peer",
                "name", f"link{link}", "netns", self.client)
            for space in self.spaces():
                self.set_address(space, link, "add")
                run("ip", "-n", space, "link", "set", f"link{link}", "up")

    def spaces(self):
        return self.server, self.client

    def inside(self, space):
        return ["ip", "netns", "exec", space]

    def address(self, space, link):
        host = 1 if space == self.server else 2
        return f"fd99:{link}::{host}" if link in self.six else f"10.99.{link}.{host}"

    def set_address(self, space, link, verb):
        extra = ["nodad"] if link in self.six and verb == "add" else []
        run("ip", "-n", space, "addr", verb, self.address(space, link) +
            ("/64" if link in self.six else "/24"), "dev", f"link{link}", *extra)

    def server_at(self, link, port):
        return (f"[{self.address(self.server, link)}]" if link in self.six
                else self.address(self.server, link)) + f":{port}"

    def path(self, link, port):
        return f"{self.address(self.client, link)}@{self.server_at(link, port)}"

    # --- Faults

    def break_link(self, link, fault):
        check(link not in self.broken, f"link {link} is broken already")
        self.broken[link] = getattr(self, "_" + fault.replace("-", "_"))(link)

    def heal(self, link):
        self.broken.pop(link)()

    def heal_all(self):
        for link in list(self.broken):
            self.heal(link)

    def _firewall(self, link, *rules):
        table = f"inet fault{link}"
        chains = "".join(
            f"add chain {table} {hook} {{ type filter hook {hook} priority 0; }}; "
            for hook in ("input", "output"))
        run(*self.inside(self.server), "nft", f"add table {table}; {chains}" + "; ".join(
            f"add rule {table} {hook} {'i' if hook == 'input' else 'o'}ifname link{link} {verdict}"
            for hook, verdict in rules))
        return lambda: run(*self.inside(self.server), "nft", f"delete table {table}")

    def _drop(self, link):
        return self._firewall(link, ("input", "drop"), ("output", "drop"))

    def _drop_to_server(self, link):
        return self._firewall(link, ("input", "drop"))

    def _drop_to_client(self, link):
        return self._firewall(link, ("output", "drop"))

    def _reset(self, link):
        return self._firewall(link, ("input", "meta l4proto tcp reject with tcp reset"))

    def _host_unreachable(self, link):
        return self._firewall(link, ("input", "meta l4proto tcp reject with icmpx type host-unreachable"))

    def _link_down(self, space, link):
        run("ip", "-n", space, "link", "set", f"link{link}", "down")
        return lambda: run("ip", "-n", space, "link", "set", f"link{link}", "up")

    def _link_down_server(self, link):
        return self._link_down(self.server, link)

    def _link_down_client(self, link):
        return self._link_down(self.client, link)

    def _address_removed(self, space, link):
        self.set_address(space, link, "del")
        return lambda: self.set_address(space, link, "add")

    def _address_removed_server(self, link):
        return self._address_removed(self.server, link)

    def _address_removed_client(self, link):
        return self._address_removed(self.client, link)


FAULTS = ("drop", "drop-to-server", "drop-to-client", "reset", "host-unreachable",
          "link-down-server", "link-down-client", "address-removed-server",
          "address-removed-client")


class Server(Daemon):
    """rnbd-server, or another program that is built beside it."""
    program_file = "rnbd-server"

    def start(self, wait=True):
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(
                [*self.prefix, os.path.join(BUILD, "rnbd-server", self.program_file), "--config",
                 self.config_path], stderr=log, stdout=log, stdin=subprocess.DEVNULL)
        if wait:
            wait_until(f"{self.name} answers", self.answers)
        return self


class MultipathLab(Lab):
    """A server in one namespace, a client in the other, a path over each link."""

    def network(self, links=2, six=()):
        self.net = Network(self, links, six)
        self.port = free_port()
        return self.net

    def start_server(self, exports, program="rnbd-server", environment=(), **config):
        server = Server(self, "rnbd-server", "server", dict(
            config, listen=[{"tcp": self.net.server_at(link, self.port)}
                            for link in range(self.net.links)], exports=exports),
            [*self.net.inside(self.net.server), *(["env", *environment] if environment else [])])
        server.program_file = program
        self.daemons.append(server)
        self.the_server = server.start()
        return server

    def start_client(self, devices, links=None, path_options=None, **session):
        """path_options: {link: {key: value}}."""
        paths = [dict({"tcp": self.net.path(link, self.port)}, **(path_options or {}).get(link, {}))
                 for link in (range(self.net.links) if links is None else links)]
        client = Daemon(self, "rnbd-client", "client", dict(
            sessions=[dict(session, name="host-a", paths=paths)],
            devices=[{"name": device, "volume": device, "access": "rw", "session": "host-a",
                      "nbd": f"unix:{self.socket('client', device)}"} for device in devices]),
            self.net.inside(self.net.client))
        self.daemons.append(client)
        self.the_client = client.start()
        wait_until("the devices are open", lambda: all(
            d["state"] == "open" for d in client.status()["devices"]))
        self.wait_for_paths()
        return client

    def paths(self):
        return self.the_client.status()["sessions"][0]["paths"]

    def path_of(self, link):
        address = self.net.server_at(link, self.port)
        return next(path for path in self.paths() if path["destination"] == address)

    def wait_for_paths(self):
        wait_until("every path is connected", lambda: all(
            path["state"] == "connected" for path in self.paths()))

    def wait_for_loss(self, link):
        wait_until(f"the path over link {link} is given up",
                   lambda: self.path_of(link)["state"] != "connected")

    def operate_path(self, operation, link):
        """add, remove, reconnect or disconnect, and wait for the result."""
        self.the_client.ctl("paths", operation, "host-a", self.net.path(link, self.port),
                            "--timeout", PATIENCE_S)

    def load(self, device):
        return VerifiedLoad(self, self.the_client, device)

    def judge(self, device, **options):
        return Judge(self, self.uri(device), **options)

    def check_no_errors(self):
        for device in self.the_client.status()["devices"]:
            check(device["errors"] == 0, f"requests of {device['name']} failed")


class Judge:
    """numbered_blocks on a device: every read is checked."""

    def __init__(self, lab, uri, **options):
        program = os.path.join(BUILD, "tests", "integration", "numbered_blocks")
        if not os.path.exists(program):
            skip("numbered_blocks was not built (libnbd's headers are missing)")
        words = [word for key, value in options.items()
                 for word in (f"--{key.replace('_', '-')}", str(value))]
        self.log_path = lab.path(f"judge{len(lab.cleanups)}.log")
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen([program, uri, *words], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        lab.cleanups.append(self.end)
        self.read_line()  # ready

    def read_line(self, seconds=300):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        check(ready, "the judge says nothing")
        line = self.process.stdout.readline()
        check(line, f"the judge ended: {self.log()}")
        return json.loads(line)

    def log(self):
        with open(self.log_path) as text:
            return text.read()[-4000:]

    def mark(self):
        """The figures since the last mark."""
        self.process.stdin.write("mark\n")
        self.process.stdin.flush()
        figures = self.read_line()
        check(figures["errors"] == 0 and figures["mismatches"] == 0, self.log())
        return figures

    def wait_for_progress(self, requests=200):
        """So many requests are answered from now on."""
        self.mark()
        done = 0

        def answered():
            nonlocal done
            figures = self.mark()
            done += figures["reads"] + figures["writes"]
            return done
        wait_to_reach(f"{requests} more requests are answered", requests, answered)

    def finish(self):
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()
        figures = self.read_line()
        status = self.process.wait(timeout=PATIENCE_S)
        check(status == 0 and figures["errors"] == 0 and figures["mismatches"] == 0,
              f"{figures} {self.log()}")
        return figures

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def resident_kib(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def heap_kib(daemon):
    """What malloc holds, without the pools that are filled once as far as they are used."""
    with open(f"/proc/{daemon.process.pid}/smaps") as maps:
        for line in maps:
            if line.endswith("[heap]\n"):
                return next(int(line.split()[1]) for line in maps if line.startswith("Rss:"))
    return 0


def disk(lab, name, size="64MiB"):
    return export(name, lab.path(f"{name}.img"), size)
