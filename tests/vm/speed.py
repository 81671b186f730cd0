"""In the guest: our pair beside the kernel's RNBD over soft-RoCE, on the same block device in memory.

  RNBD_VM=1 tests/vm/run -c 1 -m 1536 -t 3000 env RNBD_BUILD=build-release \\
      python3 tests/vm/speed.py [--busy-poll TIME] ROUNDS SECONDS [DEPTH...]

--busy-poll: what our daemons and our engine have for busy_poll (0us). It brings something where the guest has
two processors (-c 2), as these are threads that look at the device instead of sleeping.

Both pairs are up at the same time and take turns, SECONDS each, ROUNDS times per row (depths 1 and 32):

  kernel      fio on /dev/rnbd0, a device of the kernel's client; the kernel's server
  ours        fio's nbd engine on rnbd-client's socket; rnbd-server
  ours nbd0   fio on /dev/nbd0, which the kernel has from the same rnbd-client
  librnbd     fio with our own engine straight over RDMA to rnbd-server, without NBD (if it was built)
  NBD alone   at depth 1: fio's nbd engine on nbdkit's memory plugin, by a Unix socket; no network

Prints medians over the rounds, and the medians of each round's ratio to the kernel pair, which a
busy machine disturbs least. busy: of all processors, in user mode and in the kernel with its
interrupts; daemons: CPU of the two per I/O, and how often one of them slept and was woken.
"""
import argparse
import statistics
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/integration")
from fio_engine import ENGINE  # noqa: E402
from harness import *  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("--busy-poll", default="0us")
parser.add_argument("rounds", type=int, nargs="?", default=5)
parser.add_argument("seconds", type=float, nargs="?", default=2)
parser.add_argument("depths", type=int, nargs="*")
arguments = parser.parse_args()
ROUNDS, SECONDS, BUSY_POLL = arguments.rounds, arguments.seconds, arguments.busy_poll
DEPTHS = arguments.depths or [1, 32]
RAMP_S = 0.3
TICKS_S = os.sysconf("SC_CLK_TCK")
TARGETS = ("kernel", "ours", "ours nbd0") + (("librnbd",) if os.path.exists(ENGINE) else ())
SOCKETS = {"ours": "/run/rnbd/nbd", "NBD alone": "/run/rnbd/nbdkit"}


def start_kernel_pair(invalidate):
    run("modprobe", "rtrs_server", f"always_invalidate={'Y' if invalidate else 'N'}")
    run("modprobe", "rnbd_server", "dev_search_path=/dev")
    run("modprobe", "rnbd_client")
    with open("/sys/class/rnbd-client/ctl/map_device", "w") as ctl:
        ctl.write("sessname=kernel path=ip:10.1.0.1@ip:10.1.0.1 device_path=ram0")
    link = "/sys/class/rnbd-client/ctl/devices/ram0@kernel"
    device = "/dev/" + os.path.basename(os.path.realpath(link))
    wait_until(f"{device} is there", lambda: os.path.exists(device))
    return device


def stop_kernel_pair(device):
    with open(f"/sys/block/{os.path.basename(device)}/rnbd/unmap_device", "w") as ctl:
        ctl.write("normal")
    wait_until("it is unmapped", lambda: not os.path.exists(device))
    wait_until("the client ends", lambda: run("modprobe", "-r", "rnbd_client", "rtrs_client",
                                              ok=False).returncode == 0)
    run("modprobe", "-r", "rnbd_server")
    run("modprobe", "-r", "rtrs_server")


def start_our_pair(lab, invalidate):
    server = Daemon(lab, "rnbd-server", f"server{invalidate}", {
        "listen": [{"rdma": "10.1.0.1:1235"}], "always_invalidate": invalidate, "busy_poll": BUSY_POLL,
        # The kernel's server uses the device directly, too.
        "exports": [export("volume", "/dev/ram1", session="ours", io="direct"),
                    export("direct", "/dev/ram2", session="direct", io="direct")]})
    client = Daemon(lab, "rnbd-client", f"client{invalidate}", {
        "busy_poll": BUSY_POLL,
        "sessions": [{"name": "ours", "paths": [{"rdma": "10.1.0.1@10.1.0.1:1235"}]}],
        "devices": [{"name": "volume", "volume": "volume", "session": "ours", "access": "rw",
                     "nbd": f"unix:{SOCKETS['ours']}", "device": "/dev/nbd0"}]})
    lab.daemons += [server, client]
    server.start()
    client.start()
    wait_until("the device is attached", lambda: all(
        d["state"] == "open" and d["kernel"]["state"] == "attached"
        for d in client.status()["devices"]))
    return server, client


def processor_ticks():
    """user, and all else but idle, of all processors."""
    with open("/proc/stat") as stat:
        user, nice, system, _, iowait, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    return user + nice, system + irq + softirq


def of_daemons(daemons):
    """Ticks of CPU, and sleeps."""
    ticks = sleeps = 0
    for daemon in daemons:
        with open(f"/proc/{daemon.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
        with open(f"/proc/{daemon.process.pid}/status") as status:
            sleeps += next(int(line.split()[1]) for line in status
                           if line.startswith("voluntary_ctxt_switches"))
    return ticks, sleeps


def where_is(target, device):
    if target in SOCKETS:
        return ["--ioengine=nbd", f"--uri=nbd+unix:///volume?socket={SOCKETS[target]}"]
    if target == "librnbd":
        return [f"--ioengine=external:{ENGINE}", "--path=rdma:10.1.0.1@10.1.0.1:1235", "--thread",
                "--session=direct", "--volume=direct", "--open_seconds=120",
                f"--settings=busy-poll={BUSY_POLL}"]
    return ["--ioengine=libaio", "--direct=1", f"--filename={device}"]


def measure(target, device, daemons, kind, block, depth):
    before, (ticks, sleeps) = processor_ticks(), of_daemons(daemons)
    begun = time.monotonic()
    result = run("fio", "--name=speed", *where_is(target, device), f"--rw={kind}", f"--bs={block}", "--size=64m",
                 f"--iodepth={depth}", "--time_based", f"--runtime={SECONDS:g}", f"--ramp_time={RAMP_S:g}",
                 "--lat_percentiles=1", "--clat_percentiles=0",
                 "--randrepeat=0", "--norandommap=1", "--output-format=json", timeout=600)
    spent = (time.monotonic() - begun) * TICKS_S * os.cpu_count()
    user, system = (b - a for a, b in zip(before, processor_ticks()))
    ticks, sleeps = (b - a for a, b in zip((ticks, sleeps), of_daemons(daemons)))
    job = json.loads(result.stdout[result.stdout.index("{"):])["jobs"][0]
    check(job["error"] == 0, f"fio on {target}: {result.stdout[-2000:]}")
    figures = job["read" if kind == "randread" else "write"]
    ios = max(1, figures["total_ios"]) * (SECONDS + RAMP_S) / SECONDS
    return {"iops": figures["iops"], "us": figures["lat_ns"]["percentile"]["50.000000"] / 1000,
            "user": user / spent, "system": system / spent,
            "own_us": ticks / TICKS_S * 1e6 / ios, "sleeps": sleeps / ios}


def row(devices, daemons, invalidate, kind, block, depth):
    targets = TARGETS + (("NBD alone",) if depth == 1 else ())
    rounds = [{target: measure(target, devices.get(target), daemons, kind, block, depth)
               for target in targets} for _ in range(ROUNDS)]

    def middle(target, key):
        return statistics.median(r[target][key] for r in rounds)

    def ratio(target, key):
        return statistics.median(r[target][key] / r["kernel"][key] for r in rounds)
    words = [f"{'on' if invalidate else 'off'}", kind, block, str(depth)]
    for target in TARGETS:
        words.append(f"{middle(target, 'iops'):.0f} / {middle(target, 'us'):.0f}")
        if target != "kernel":
            words.append(f"{ratio(target, 'iops'):.2f} / {ratio(target, 'us'):.2f}")
    words += [f"{middle(t, 'user'):.0%} + {middle(t, 'system'):.0%}" for t in ("kernel", "ours")]
    words.append(f"{middle('ours', 'own_us'):.0f} us, {middle('ours', 'sleeps'):.1f}")
    words.append(f"{middle('NBD alone', 'us'):.0f}" if depth == 1 else "")
    print("| " + " | ".join(words) + " |", flush=True)


need_root()
need("fio", "rdma", "modprobe", "nbdkit")
run("bash", "-c", f". {HERE}/interop_lib && one_wire")
run("modprobe", "brd", "rd_nr=3", "rd_size=65536")
run("modprobe", "nbd", "nbds_max=1")
if shutil.which("perf"):  # two processes that wake each other
    print(*(line for line in run("perf", "bench", "sched", "pipe", "-l", "2000").stdout.splitlines()
            if "usecs/op" in line), flush=True)
print("| always_invalidate | load | block | depth | kernel: IOPS / p50 us | ours | ratio | ours nbd0 | "
      "ratio | " + "librnbd | ratio | " * ("librnbd" in TARGETS) +
      "busy: kernel | ours | daemons, ours | NBD alone: p50 us |\n" +
      "|---" * (9 + 2 * (len(TARGETS) - 1)) + "|", flush=True)
with Lab() as lab:
    nbdkit = subprocess.Popen(["nbdkit", "-f", "-U", SOCKETS["NBD alone"], "memory", "64M"])
    lab.cleanups.append(nbdkit.kill)
    for invalidate in (True, False):
        kernel_device = start_kernel_pair(invalidate)
        daemons = start_our_pair(lab, invalidate)
        devices = {"kernel": kernel_device, "ours nbd0": "/dev/nbd0"}
        for depth in DEPTHS:
            for block in ("4k", "124k"):
                for kind in ("randread", "randwrite"):
                    row(devices, daemons, invalidate, kind, block, depth)
        check(daemons[1].stop() == 0 and daemons[0].stop() == 0, "stop")
        stop_kernel_pair(kernel_device)
