"""In the guest: a program on librnbd writes and reads back over RDMA, and over RDMA beside TCP while
devices of the client and of the server go away and come back, and wires are cut. There is no error, and
nothing is left on the devices. Then fio with our engine, and nbdkit with our plugin, over RDMA.

  RNBD_VM=1 tests/vm/run -m 1536 -t 1100 env RNBD_BUILD=build-release python3 tests/vm/librnbd_over_rdma.py
"""
from guest import *
from fio_engine import ENGINE, environment

PROGRAM = os.path.join(BUILD, "tests/vm/librnbd_over_rdma")
PLUGIN = os.path.join(BUILD, "nbdkit/nbdkit-rnbd-plugin.so")
RDMA = [f"rdma:10.{wire}.0.1@10.{wire}.0.2:1235" for wire in (0, 1)]
TCP = "127.0.0.1:1235"


def delete_device(end):
    """It ends when the program has let go of the device."""
    run("rdma", "link", "delete", f"rx{end}", timeout=SLOW_S)


def add_device(end):
    run("rdma", "link", "add", f"rx{end}", "type", "rxe", "netdev", end)


def shape(verb, *words):
    for port in ("sa0", "sb0"):
        run("tc", "qdisc", verb, "dev", port, "root", *words)


class Program:
    """Ours on librnbd, and what it has said so far."""

    def __init__(self, *words):
        self.lines = []
        self.process = subprocess.Popen([PROGRAM, *words], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def says(self, what, since=0):
        def said():
            check(self.process.poll() is None or what in self.lines[since:],
                  f"it ended with {self.process.returncode}: {self.lines[-10:]}")
            return what in self.lines[since:]
        wait_until(f"it says {what!r}; it said {self.lines[-10:]}", said, SLOW_S)

    def goes_on(self):
        """Some hundred requests more are read back."""
        def verified():
            check(self.process.poll() is None,
                  f"it ended with {self.process.returncode}: {self.lines[-10:]}")
            return sum(line.startswith("verified") for line in self.lines)
        before = verified()
        wait_until("more is verified", lambda: verified() > before + 2, SLOW_S)

    def during(self, event, change):
        """What change causes is told."""
        since = len(self.lines)
        change()
        self.says(event, since)

    def order(self, order, answer):
        since = len(self.lines)
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        self.says(f"{order}: {answer}", since)

    def end(self, wanted):
        self.process.stdin.close()
        check(self.process.wait(SLOW_S) == 0, f"it failed: {self.lines[-10:]}")
        self.reader.join()
        check(self.lines[-1] == "done" and wanted in self.lines,
              f"the end is {self.lines[-10:]}, expected {wanted!r}")


def fabrics(server):
    return sorted(path["fabric"] for session in server.status()["sessions"]
                  for path in session["paths"])


def tcp_alone(server, thread):
    """Of what comes by TCP this kernel may tell a program's poll(2) otherwise than of completion queues."""
    program = Program(thread, "8", f"tcp:{TCP}")
    program.says(f"path up {TCP}")
    program.goes_on()
    check(fabrics(server) == ["tcp"], f"the server has {server.status()['sessions']}")
    program.end("freed with 8 requests under way")


def rdma_alone(server, thread):
    program = Program(thread, "8", RDMA[0])
    program.says(f"path up {RDMA[0]}")
    program.goes_on()
    check(fabrics(server) == ["rdma"], f"the server has {server.status()['sessions']}")
    program.end("freed with 8 requests under way")


def freed_without_its_device(thread):
    """Requests wait for a path that does not come back."""
    program = Program(thread, "0", RDMA[0])
    program.goes_on()
    program.during(f"path down {RDMA[0]}", lambda: delete_device("a0"))
    program.end("freed with 16 requests under way")
    add_device("a0")


def rdma_beside_tcp(server, thread):
    program = Program(thread, "8", RDMA[0], f"standby:tcp:{TCP}")
    program.says(f"path up {RDMA[0]}")
    program.says(f"path up {TCP}")
    program.goes_on()
    check(fabrics(server) == ["rdma", "tcp"], f"the server has {server.status()['sessions']}")
    for end in ("a0", "b0"):
        program.during(f"path down {RDMA[0]}", lambda: delete_device(end))
        program.goes_on()
        program.during(f"path up {RDMA[0]}", lambda: add_device(end))
        program.goes_on()
    program.during(f"path up {RDMA[1]}", lambda: program.order(f"add {RDMA[1]}", "ok"))
    program.order(f"remove {TCP}", "ok")
    program.goes_on()
    program.during(f"path down {RDMA[0]}", lambda: shape("add", "netem", "loss", "100%"))
    program.goes_on()
    program.during(f"path up {RDMA[0]}", lambda: shape("del"))
    program.order(f"remove {RDMA[1]}", "ok")
    program.goes_on()
    nowhere = "rdma:192.0.2.1@10.1.0.2:1235"
    program.order(f"add {nowhere}",
                  f"path {nowhere}: no RDMA device has the address 192.0.2.1 (rdma link shows devices; "
                  "soft-RoCE is made with rdma link add)")
    program.end("freed with 8 requests under way")


def a_device_that_comes_later(thread):
    """The session begins with its other path."""
    delete_device("a0")
    program = Program(thread, "8", f"standby:tcp:{TCP}", RDMA[0])
    program.says(f"path up {TCP}")
    program.goes_on()
    program.during(f"path up {RDMA[0]}", lambda: add_device("a0"))
    program.goes_on()
    program.end("freed with 8 requests under way")


def fio_with_our_engine(folder):
    if not os.path.exists(ENGINE):
        return print("without the engine for fio, which was not built")
    need("fio")
    result = run("fio", "--name=job", f"--ioengine=external:{ENGINE}",
                 f"--path={RDMA[0]},{RDMA[1]}", "--thread", "--session=guest", "--volume=volume",
                 "--open_seconds=60", "--rw=randwrite", "--bsrange=4k-128k", "--iodepth=16",
                 "--size=8m", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0",
                 cwd=folder, env=environment())
    check("err= 0" in result.stdout, result.stdout)


def nbdkit_with_our_plugin(lab):
    if not os.path.exists(PLUGIN) or not shutil.which("nbdkit") or not shutil.which("nbdcopy"):
        return print("without nbdkit, which is not here")
    image, copy = lab.random_file("image", 4 << 20), lab.path("copy")
    run("nbdkit", "-U", "-", PLUGIN, "session=guest", "volume=small", f"path={RDMA[0]}",
        "--run", f'nbdcopy {image} "$uri" && nbdcopy "$uri" {copy}', env=environment())
    check(same(image, copy), "nbdcopy read something else than it wrote")


need_root()
need("rdma", "tc", "ip")
run("bash", "-c", f". {HERE}/interop_lib && two_wires")
before = rdma_resources()
with Lab() as lab:
    server = Daemon(lab, "rnbd-server", "server", {
        "listen": [{"rdma": "10.0.0.2:1235"}, {"rdma": "10.1.0.2:1235"}, {"tcp": TCP}],
        "queue_depth": 64,
        "heartbeat": {"interval": "1s", "timeout": "5s"},
        "exports": [export(name, lab.path(f"{name}.img"), size, session="guest")
                    for name, size in (("volume", "64MiB"), ("small", "4MiB"))]})
    lab.daemons.append(server)
    server.start()
    listening = rdma_resources()

    def finished(what):
        try:
            wait_until("the devices have all back", lambda: rdma_resources() == listening, SLOW_S)
        except AssertionError:
            print(f"expected {listening}, there is", run("rdma", "resource").stdout,
                  *(run("rdma", "resource", "show", kind).stdout for kind in ("cm_id", "qp", "mr")), sep="\n")
            raise
        print(f"ok: {what}", flush=True)
    for thread in ("off", "on"):
        tcp_alone(server, thread)
        finished(f"TCP alone, thread {thread}")
        rdma_alone(server, thread)
        finished(f"RDMA alone, thread {thread}")
        rdma_beside_tcp(server, thread)
        finished(f"RDMA beside TCP, thread {thread}")
        freed_without_its_device(thread)
        finished(f"freed without its device, thread {thread}")
        a_device_that_comes_later(thread)
        finished(f"a device that comes later, thread {thread}")
    fio_with_our_engine(lab.folder)
    finished("fio with the engine")
    nbdkit_with_our_plugin(lab)
    finished("nbdkit with the plugin")
    check(server.stop() == 0, "rnbd-server")
check(rdma_resources() == before, f"left behind: {rdma_resources()}, before: {before}")
print("ok")
