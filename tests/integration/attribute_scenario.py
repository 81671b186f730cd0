"""Every attribute of kernel RNBD's sysfs tree, read, written, and written wrongly.

The same scenario runs over `rnbdctl` and over files: `sys` is one of the classes below. A function
is the test of the attributes that its decorator names, by the pattern in the daemons' tables;
docs/reference/attributes.md is made from those and these.
"""

import errno
import re

from harness import *

TESTS = []


def attribute(*patterns):
    def remember(function):
        TESTS.append((function, patterns))
        return function
    return remember


class Rnbdctl:
    """`rnbdctl get`, `set` and `tree`."""

    def __init__(self, server, client):
        self.server, self.client = server, client

    def ask(self, path, *words):
        daemon = self.server if "-server" in path else self.client
        result = daemon.ctl("--json", *words, ok=False)
        check(result.stdout, (words, result))
        answer = json.loads(result.stdout)
        if answer["ok"]:
            return answer["result"]
        raise OSError(answer["error"].get("errno", -1), answer["error"]["message"])

    def get(self, path):
        return self.ask(path, "get", path)["value"]

    def set(self, path, value):
        self.ask(path, "set", path, "--", value)

    def list(self, path):
        entries = self.ask(path, "tree", path)["entries"]
        return sorted({e["path"][len(path) + 1:].split("/")[0] for e in entries})

    def link(self, path):
        return self.ask(path, "tree", path)["target"]

    def mode(self, path):
        return int(self.ask(path, "tree", path)["mode"], 8)


class Files:
    """The same tree as a file system."""

    def __init__(self, root):
        self.root = root

    def get(self, path):
        with open(os.path.join(self.root, path)) as file:
            return file.read()

    def set(self, path, value):
        fd = os.open(os.path.join(self.root, path), os.O_WRONLY | os.O_TRUNC)
        try:
            check(os.write(fd, value.encode()) == len(value), "written whole")
        finally:
            os.close(fd)

    def list(self, path):
        return sorted(os.listdir(os.path.join(self.root, path)))

    def link(self, path):
        return os.readlink(os.path.join(self.root, path))

    def mode(self, path):
        return os.lstat(os.path.join(self.root, path)).st_mode & 0o7777


def name(number):
    return errno.errorcode.get(number, str(number))


def refused(action, *expected):
    """The action fails, with one of these errno."""
    try:
        action()
    except OSError as error:
        check(error.errno in expected, f"{name(error.errno)} instead of {[name(e) for e in expected]}: {error}")
        return
    raise AssertionError(f"it was not refused with {[name(e) for e in expected]}")


class World:
    """A server on all of loopback, a client with one path, one device, and more to map."""

    def __init__(self, lab):
        self.lab = lab
        both = [{"session": s, "access": "rw"} for s in ("host-a", "host-b")]
        self.server = lab.server(
            [dict(export("vol1", lab.path("vol1.img"), "16MiB"), allow=both),
             export("dir/vol2", lab.path("vol2.img"), "8MiB"),
             export("golden", lab.path("golden.img"), "8MiB", access="ro"),
             export("other", lab.path("other.img"), "8MiB", session="host-z")], host="0.0.0.0")
        self.client = lab.client(self.server, {"vol1": {}})
        self.session = "class/rtrs-client/host-a"
        self.path = self.session + "/paths/ip:127.0.0.1@ip:127.0.0.1"
        self.map = "class/rnbd-client/ctl/map_device"
        self.device = "block/rnbd0/rnbd"
        self.server_path = "class/rtrs-server/host-a/paths/ip:127.0.0.1@ip:127.0.0.1"
        self.export = "class/rnbd-server/ctl/devices/vol1"
        self.holder = self.export + "/sessions/host-a"

    def expect(self, path, text):
        found = self.sys.get(path)
        check(found == text, f"{path}: {found!r} instead of {text!r}")

    def wait_for(self, path, text):
        wait_until(f"{path} is {text!r}", lambda: self.sys.get(path) == text)

    def wrong(self, path, *values, error=errno.EINVAL):
        for value in values:
            # A write of no bytes to a file does not leave the kernel.
            if value == "" and isinstance(self.sys, Files):
                continue
            refused(lambda: self.sys.set(path, value), error)

    def one_or_einval(self, path):
        self.wrong(path, "0", "2", "yes", "1 1", "")

    def numbers(self, path):
        return [int(word) for word in self.sys.get(path).split()]

    def use(self):
        """Some reads and writes."""
        with open(self.lab.path("data"), "wb") as data:
            data.write(b"x" * (16 << 20))
        run("nbdcopy", self.lab.path("data"), self.lab.uri("vol1"))
        run("nbdcopy", self.lab.uri("vol1"), "null:")

    def with_second_path(self):
        path = self.session + "/paths/ip:127.0.0.9@ip:127.0.0.2"
        if os.path.basename(path) not in self.sys.list(self.session + "/paths"):
            self.sys.set(self.session + "/add_path", "ip:127.0.0.9@ip:127.0.0.2\n")
        return path


# --- rtrs-client: the session.

@attribute("class/rtrs-client/{session}/max_reconnect_attempts")
def max_reconnect_attempts(w):
    path = w.session + "/max_reconnect_attempts"
    w.expect(path, "-1\n")
    for value in ("0", "9999\n", "+7", "-1\n"):
        w.sys.set(path, value)
        w.expect(path, f"{int(value)}\n")
    w.wrong(path, "", "x", "1 2", "10000", "-2", "0x10", "5\n\n")
    w.wrong(path, "99999999999", error=errno.ERANGE)
    w.expect(path, "-1\n")


@attribute("class/rtrs-client/{session}/mpath_policy", "class/rtrs-client/{session}/mp_policy")
def mpath_policy(w):
    for path in (w.session + "/mpath_policy", w.session + "/mp_policy"):
        w.expect(path, "min-inflight (MI: 1)\n")
        for value, text in [
                ("0", "round-robin (RR: 0)"), ("ML\n", "min-latency (ML: 2)"),
                ("Round-Robin and more", "round-robin (RR: 0)"), ("mi", "min-inflight (MI: 1)"),
                ("min-latency\n", "min-latency (ML: 2)"), ("st", "service-time (ST: 3)"),
                ("1\n", "min-inflight (MI: 1)")]:
            w.sys.set(path, value)
            w.expect(path, text + "\n")
        w.wrong(path, "", "4", "-1", "rrr", "m", "min", "fastest")
    check(w.client.ctl("policy", "host-a").stdout == "host-a: min-inflight\n", "the policy")


@attribute("class/rtrs-client/{session}/add_path")
def add_path(w):
    path = w.session + "/add_path"
    check(w.sys.get(path).startswith("Usage: echo [<source addr>@]<destination addr> > add_path\n"),
          w.sys.get(path))
    w.wrong(path, "", "127.0.0.2", "ip:127.0.0", "ip:127.0.0.2:1234", "ip:here", "ip:::1@ip:127.0.0.2")
    w.wrong(path, "gid:fe80::1", error=errno.ENODEV)
    w.wrong(path, "ip:127.0.0.1", error=errno.EEXIST)
    second = w.with_second_path()
    w.expect(second + "/state", "connected\n")
    w.wrong(path, "ip:127.0.0.9@ip:127.0.0.2", error=errno.EEXIST)
    # Nobody listens there: it is gone again.
    before = w.sys.list(w.session + "/paths")
    refused(lambda: w.sys.set(path, "ip:::1\n"), errno.ECONNREFUSED, errno.EADDRNOTAVAIL,
            errno.ENETUNREACH)
    check(w.sys.list(w.session + "/paths") == before, "no path is left behind")
    w.sys.set(path, "ip:127.0.0.1,ip:127.0.0.3\n")
    third = w.session + "/paths/ip:127.0.0.1@ip:127.0.0.3"
    w.expect(third + "/state", "connected\n")
    w.sys.set(third + "/remove_path", "1")


# --- rtrs-client: the path.

@attribute(*(f"class/rtrs-client/{{session}}/paths/{{path}}/{name}"
             for name in ("state", "disconnect", "reconnect")))
def a_path_is_disconnected_and_reconnected(w):
    second = w.with_second_path()
    for name in ("disconnect", "reconnect"):
        w.expect(f"{second}/{name}", f"Usage: echo 1 > {name}\n")
        w.one_or_einval(f"{second}/{name}")
    w.expect(second + "/state", "connected\n")
    w.sys.set(second + "/disconnect", "1\n")
    w.expect(second + "/state", "disconnected\n")
    w.sys.set(second + "/disconnect", "1")
    w.sys.set(second + "/reconnect", "1\n")
    w.expect(second + "/state", "connected\n")
    w.sys.set(second + "/reconnect", "1")
    w.expect(second + "/state", "connected\n")


@attribute("class/rtrs-client/{session}/paths/{path}/remove_path")
def remove_path(w):
    second = w.with_second_path()
    w.expect(second + "/remove_path", "Usage: echo 1 > remove_path\n")
    w.one_or_einval(second + "/remove_path")
    w.sys.set(second + "/remove_path", "1\n")
    check(w.sys.list(w.session + "/paths") == ["ip:127.0.0.1@ip:127.0.0.1"], "one is left")
    refused(lambda: w.sys.get(second + "/state"), errno.ENOENT)
    w.wrong(w.path + "/remove_path", "1", error=errno.EBUSY)


@attribute(*(f"class/rtrs-client/{{session}}/paths/{{path}}/{name}"
             for name in ("hca_name", "hca_port", "src_addr", "dst_addr", "cur_latency")))
def what_a_path_is(w):
    w.expect(w.path + "/hca_name", "lo\n")
    w.expect(w.path + "/hca_port", "1\n")
    w.expect(w.path + "/src_addr", "ip:127.0.0.1\n")
    w.expect(w.path + "/dst_addr", "ip:127.0.0.1\n")
    wait_until("a heartbeat came back", lambda: re.fullmatch(
        r"[1-9]\d* ns\n", w.sys.get(w.path + "/cur_latency")))


@attribute(*(f"class/rtrs-client/{{session}}/paths/{{path}}/stats/{name}"
             for name in ("rdma", "reconnects", "reset_all")))
def statistics_of_a_path(w):
    stats = w.path + "/stats/"
    w.use()
    reads, read_bytes, writes, write_bytes, in_flight, taken_over = w.numbers(stats + "rdma")
    check(reads >= 16 and read_bytes > 16 << 20, (reads, read_bytes))
    check(writes >= 16 and write_bytes > 16 << 20, (writes, write_bytes))
    check(in_flight == 0 and taken_over == 0, (in_flight, taken_over))
    for name in ("rdma", "reconnects", "reset_all"):
        w.one_or_einval(stats + name)
    w.sys.set(stats + "rdma", "1\n")
    w.expect(stats + "rdma", "0 0 0 0 0 0\n")
    w.sys.set(w.path + "/reconnect", "1")
    wait_until("it is connected again", lambda: w.sys.get(w.path + "/state") == "connected\n")
    check(w.numbers(stats + "reconnects")[0] >= 1, w.sys.get(stats + "reconnects"))
    w.sys.set(stats + "reconnects", "1")
    w.expect(stats + "reconnects", "0 0\n")
    w.use()
    w.expect(stats + "reset_all", "echo 1 to reset all statistics\n")
    check(w.numbers(stats + "rdma")[0] > 0, "it counts again")
    w.sys.set(stats + "reset_all", "1")
    w.expect(stats + "rdma", "0 0 0 0 0 0\n")
    check(w.client.status()["sessions"][0]["paths"][0]["sent"] > 0, "status is not reset")


@attribute(*(f"class/rtrs-client/{{session}}/paths/{{path}}/stats/{name}"
             for name in ("cpu_migration_from", "cpu_migration_to", "cpu_migration")))
def cpu_migrations(w):
    for name in ("cpu_migration_from", "cpu_migration_to"):
        path = f"{w.path}/stats/{name}"
        check(re.fullmatch(r"(0 )+\n", w.sys.get(path)), w.sys.get(path))
    path = w.path + "/stats/cpu_migration"
    check(re.fullmatch(r"from: (0 )+\nto: (0 )+\n", w.sys.get(path)), w.sys.get(path))
    for name in ("cpu_migration_from", "cpu_migration_to", "cpu_migration"):
        w.sys.set(f"{w.path}/stats/{name}", "1\n")
        w.one_or_einval(f"{w.path}/stats/{name}")


# --- rnbd-client.

@attribute("class/rnbd-client/ctl/map_device", "class/rnbd-client/ctl/devices/{name}@{session}",
           "block/{device}/rnbd/unmap_device")
def devices_are_mapped_and_unmapped(w):
    links = "class/rnbd-client/ctl/devices"
    check("sessname=<name of the rtrs session>" in w.sys.get(w.map), w.sys.get(w.map))
    check(w.sys.list(links) == ["vol1@host-a"], w.sys.list(links))
    w.sys.set(w.map, "sessname=host-a device_path=dir/vol2 nr_poll_queues=-1\n")
    check(w.sys.list(links) == ["dir!vol2@host-a", "vol1@host-a"], w.sys.list(links))
    check(w.sys.link(links + "/dir!vol2@host-a").endswith("../../../../block/rnbd1"), "the link")
    w.expect("block/rnbd1/rnbd/state", "open\n")
    # Through the link.
    w.expect(links + "/dir!vol2@host-a/rnbd/mapping_path", "dir/vol2\n")
    check("vol" in run("nbdinfo", w.lab.control_uri("rnbd1")).stdout, "it is served")
    unmap = "block/rnbd1/rnbd/unmap_device"
    w.expect(unmap, "Usage: echo <normal|force> > unmap_device\n")
    w.wrong(unmap, "", "1", "normally")
    user = subprocess.Popen(["nbdsh", "-u", w.lab.control_uri("rnbd1"), "-c",
                             "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        wait_until("somebody uses it", lambda: w.client.status()["devices"][1]["connections"] > 0)
        w.wrong(unmap, "normal\n", error=errno.EBUSY)
        w.sys.set(unmap, " force \n")
    finally:
        user.communicate()
    refused(lambda: w.sys.get(unmap), errno.ENOENT)
    w.sys.set(w.map, "sessname=host-a device_path=dir/vol2")
    w.sys.set(unmap, "normal\n")
    check(w.sys.list(links) == ["vol1@host-a"], w.sys.list(links))


@attribute("class/rnbd-client/ctl/map_device")
def devices_that_cannot_be_mapped(w):
    w.wrong(w.map, "", "sessname=host-a", "device_path=vol1", "sessname= device_path=vol1",
            "sessname=host-a device_path=golden access_mode=wr", "sessname=host-a device_path=golden x=1",
            "sessname=host-a device_path=golden dest_port=70000", "sessname=a.b device_path=x path=ip:127.0.0.1",
            "sessname=host-a device_path=golden nr_poll_queues=-2", "sessname=new device_path=x path=here",
            f"sessname={256 * 'x'} device_path=golden")
    w.wrong(w.map, "sessname=host-a device_path=vol1", error=errno.EEXIST)
    w.wrong(w.map, "sessname=new device_path=vol1", error=errno.ENXIO)
    w.wrong(w.map, "sessname=new device_path=vol1" + 7 * " path=ip:127.0.0.1", error=errno.ENOMEM)
    w.wrong(w.map, "sessname=host-a device_path=absent", error=errno.ENOENT)
    w.wrong(w.map, "sessname=host-a device_path=other", error=errno.EACCES)
    there = f"dest_port={w.server.port} path=ip:127.0.0.1"
    # It is open for writing already.
    w.wrong(w.map, f"{there} sessname=host-b device_path=vol1", error=errno.EPERM)
    nowhere = f"dest_port={free_port()} path=ip:127.0.0.1"
    w.wrong(w.map, f"{nowhere} sessname=host-b device_path=vol1", error=errno.ECONNREFUSED)
    wait_until("no session is left behind",
               lambda: w.sys.list("class/rtrs-client") == ["host-a"])
    check(w.sys.list("class/rnbd-client/ctl/devices") == ["vol1@host-a"], "no device is left behind")
    w.sys.set(w.map, f"{there} sessname=host-b device_path=vol1 access_mode=ro")
    check(w.sys.list("class/rtrs-client") == ["host-a", "host-b"], "a session of its own")
    w.sys.set("block/rnbd1/rnbd/unmap_device", "normal")
    wait_until("the session ended with its last device",
               lambda: w.sys.list("class/rtrs-client") == ["host-a"])


@attribute(*(f"block/{{device}}/rnbd/{name}"
             for name in ("state", "session", "mapping_path", "access_mode", "nr_poll_queues")))
def what_a_device_is(w):
    for name, text in [("state", "open"), ("session", "host-a"), ("mapping_path", "vol1"),
                       ("access_mode", "rw"), ("nr_poll_queues", "0")]:
        w.expect(f"{w.device}/{name}", text + "\n")
    w.sys.set(w.map, "sessname=host-a device_path=golden access_mode=ro")
    w.expect("block/rnbd1/rnbd/access_mode", "ro\n")
    w.sys.set("block/rnbd1/rnbd/unmap_device", "normal")


@attribute("block/{device}/rnbd/resize")
def a_device_has_another_size(w):
    resize = w.device + "/resize"
    w.expect(resize, "Usage: echo <new size in sectors> > resize\n")
    w.wrong(resize, "", "x", "-1", "8 8", "1M", "08", str(1 << 60))
    w.wrong(resize, str(1 << 64), error=errno.ERANGE)
    size = lambda: w.client.status()["devices"][0]["size_bytes"]
    at_server = lambda: w.server.status()["exports"][0]["size_bytes"]
    whole = size()
    check(whole == at_server(), (whole, at_server()))
    for text, sectors in (("4096", 4096), ("0x1000\n", 0x1000), ("010000", 0o10000)):
        w.sys.set(resize, str(whole // 512))
        w.sys.set(resize, text)
        check(size() == sectors * 512, (text, size()))
        check(run("nbdinfo", "--size", w.lab.uri("vol1")).stdout.strip() == str(sectors * 512), text)
    w.sys.set(resize, str(whole // 512))
    check(size() == whole == at_server(), "it is as it was, and the server's never changed")


# --- rtrs-server and rnbd-server.

@attribute(*(f"class/rtrs-server/{{session}}/paths/{{path}}/{name}"
             for name in ("hca_name", "hca_port", "src_addr", "dst_addr", "stats/rdma")))
def what_a_servers_path_is(w):
    for name, text in [("hca_name", "lo"), ("hca_port", "1"), ("src_addr", "ip:127.0.0.1"),
                       ("dst_addr", "ip:127.0.0.1")]:
        w.expect(f"{w.server_path}/{name}", text + "\n")
    stats = w.server_path + "/stats/rdma"
    w.use()
    reads, read_bytes, writes, write_bytes = w.numbers(stats)
    check(reads >= 16 and read_bytes > 16 << 20, (reads, read_bytes))
    check(writes >= 16 and write_bytes > 16 << 20, (writes, write_bytes))
    w.one_or_einval(stats)
    w.sys.set(stats, "1\n")
    w.expect(stats, "0 0 0 0\n")
    # From another address: src_addr is the client's.
    w.with_second_path()
    second = "class/rtrs-server/host-a/paths/ip:127.0.0.9@ip:127.0.0.2"
    w.expect(second + "/src_addr", "ip:127.0.0.9\n")
    w.expect(second + "/dst_addr", "ip:127.0.0.2\n")


@attribute("class/rtrs-server/{session}/paths/{path}/disconnect")
def the_server_disconnects_a_path(w):
    second = w.with_second_path()
    path = "class/rtrs-server/host-a/paths/ip:127.0.0.9@ip:127.0.0.2/disconnect"
    w.expect(path, "Usage: echo 1 > disconnect\n")
    w.one_or_einval(path)
    before = w.numbers(second + "/stats/reconnects")[0]
    w.sys.set(path, "1\n")
    wait_until("the client has come back", lambda: (
        w.numbers(second + "/stats/reconnects")[0] > before and
        w.sys.get(second + "/state") == "connected\n"))


@attribute("class/rnbd-server/ctl/devices/{device}/block_dev",
           *(f"class/rnbd-server/ctl/devices/{{device}}/sessions/{{holder}}/{name}"
             for name in ("access_mode", "read_only", "mapping_path")))
def who_has_an_export_open(w):
    check(w.sys.list("class/rnbd-server/ctl/devices") == ["vol1"], "only those that are open")
    check(w.sys.link(w.export + "/block_dev") == w.lab.path("vol1.img"), "the file")
    for name, text in [("access_mode", "rw"), ("read_only", "0"), ("mapping_path", "vol1")]:
        w.expect(f"{w.holder}/{name}", text + "\n")
    w.sys.set(w.map, "sessname=host-a device_path=golden access_mode=ro")
    w.sys.set(w.map, "sessname=host-a device_path=dir/vol2")
    check(w.sys.list("class/rnbd-server/ctl/devices") == ["dir!vol2", "golden", "vol1"], "three")
    w.expect("class/rnbd-server/ctl/devices/golden/sessions/host-a/read_only", "1\n")
    w.expect("class/rnbd-server/ctl/devices/golden/sessions/host-a/access_mode", "ro\n")
    w.expect("class/rnbd-server/ctl/devices/dir!vol2/sessions/host-a/mapping_path", "dir/vol2\n")
    for device in ("rnbd1", "rnbd2"):
        w.sys.set(f"block/{device}/rnbd/unmap_device", "normal")


@attribute("class/rnbd-server/ctl/devices/{device}/sessions/{holder}/force_close")
def a_session_is_made_to_close(w):
    w.sys.set(w.map, "sessname=host-a device_path=dir/vol2")
    folder = "class/rnbd-server/ctl/devices/dir!vol2"
    path = folder + "/sessions/host-a/force_close"
    w.expect(path, "Usage: echo 1 > force_close\n")
    w.one_or_einval(path)
    w.sys.set(path, "1\n")
    wait_until("it is closed", lambda: w.sys.list("class/rnbd-server/ctl/devices") == ["vol1"])
    w.sys.set("block/rnbd1/rnbd/unmap_device", "force")


# --- The server is away. Last, for it ends the server.

@attribute("block/{device}/rnbd/remap_device", "block/{device}/rnbd/state",
           "class/rtrs-client/{session}/paths/{path}/reconnect")
def the_server_is_away(w):
    remap = w.device + "/remap_device"
    w.expect(remap, "Usage: echo <1> > remap_device\n")
    w.wrong(remap, "", "0", "yes")
    w.wrong(remap, " 1 \n", error=errno.EALREADY)
    w.server.stop()
    w.wait_for(w.path + "/state", "disconnected\n")
    w.wait_for(w.device + "/state", "closed\n")
    w.wrong(remap, "1", error=errno.ECONNABORTED)
    w.wrong(w.device + "/resize", "4096", error=errno.ENOENT)
    w.wrong(w.map, "sessname=host-a device_path=golden", error=errno.ECONNABORTED)
    refused(lambda: w.sys.set(w.path + "/reconnect", "1"), errno.ENOTCONN, errno.EBUSY)
    os.rename(w.lab.path("vol1.img"), w.lab.path("vol1.away"))
    w.server.config_with(lambda config: config["exports"][0].pop("size"))
    w.server.start()
    w.wait_for(w.path + "/state", "connected\n")
    # The export waits for its file.
    wait_until("it is refused", lambda: w.client.status()["devices"][0]["reason"] and
               "refuses" in w.client.status()["devices"][0]["reason"])
    w.wrong(remap, "1", error=errno.ENOENT)
    os.rename(w.lab.path("vol1.away"), w.lab.path("vol1.img"))
    wait_until("it is ready", lambda: w.server.status()["exports"][0]["state"] == "ready")
    try:
        w.sys.set(remap, "1")
    except OSError as error:
        check(error.errno == errno.EALREADY, error)  # the client was faster
    w.expect(w.device + "/state", "open\n")


def all_files(sys, path):
    """Files at and below."""
    for entry in sys.list(path):
        below = f"{path}/{entry}"
        mode = sys.mode(below)
        if mode == 0o755:
            yield from all_files(sys, below)
        elif mode != 0o777:
            yield below, mode


def every_file_has_its_mode(w):
    found = 0
    for top in ("class/rtrs-client", "class/rnbd-client", "block", "class/rtrs-server",
                "class/rnbd-server"):
        for path, mode in all_files(w.sys, top):
            found += 1
            text = w.sys.get(path)
            check(text.endswith("\n"), (path, text))
            check(mode in (0o444, 0o644), (path, oct(mode)))
            if mode == 0o444:
                w.wrong(path, "1", error=errno.EACCES)
    check(found > 30, f"{found} files")


def what_is_not_there(w):
    for path in ("class/rtrs-client/nobody/add_path", "class/rtrs-client/host-a/nothing",
                 "block/rnbd7/rnbd/state", "class/rtrs-server/nobody", "class/rnbd-server/ctl/map_device",
                 w.path + "/stats/rdma_bytes"):
        refused(lambda: w.sys.get(path), errno.ENOENT)
    refused(lambda: w.sys.get(w.session), errno.EISDIR)
    refused(lambda: w.sys.get(w.session + "/add_path/more"), errno.ENOTDIR)


def run_scenario(w, sys):
    w.sys = sys
    every_file_has_its_mode(w)
    what_is_not_there(w)
    for function, patterns in TESTS:
        function(w)
        print(f"{function.__name__}: {', '.join(patterns)}")
