"""In the guest: devices of the kernel's NBD driver, attached by rnbd-client and by nbd-client."""

import hashlib

from guest import *

need_root()
need("nbd-client", "fio", "mkfs.ext4", "modprobe", "resize2fs", "addpart")
PARTITION_AT, PARTITION_BYTES = 8 << 20, 4 << 20
UDEVD = "/lib/systemd/systemd-udevd"
RULES = os.path.join(os.path.dirname(__file__), "../../systemd/60-rnbd.rules")


def set_loader(program):
    with open("/proc/sys/kernel/modprobe", "w") as loader:
        loader.write(program)


def kernel(client, name="vol1"):
    return next(d for d in client.status()["devices"] if d["name"] == name)["kernel"]


def attached(client, name="vol1"):
    wait_until(f"{name} is attached", lambda: kernel(client, name)["state"] == "attached")
    return kernel(client, name)["path"]


def requests_under_way(device):
    with open(f"/sys/block/{os.path.basename(device)}/inflight") as counts:
        return sum(int(count) for count in counts.read().split())


def wait_until_at_rest(device):
    """With requests under way the kernel's device would be given up (docs/not-supported.md). udev reads a device
    that has another size, or was written, and may come to it late."""
    if with_udev:
        run("udevadm", "settle")
    wait_until("nothing is under way", lambda: requests_under_way(device) == 0)


def digest(path):
    with open(path, "rb") as data:
        return hashlib.sha256(data.read()).hexdigest()


def verify_by_fio(folder):
    run("fio", "--name=verify", f"--directory={folder}", "--size=8m", "--rw=randrw", "--bs=4k-64k",
        "--ioengine=libaio", "--direct=1", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1",
        "--do_verify=1", "--loops=2")


def resize_under_load(server, client, device, folder):
    """Grows the export step by step while fio verifies what it writes on the mounted device."""
    def written():
        return client.status()["devices"][0]["writes"]

    def reconnects():
        return [path["reconnects"] for path in client.status()["sessions"][0]["paths"]]

    session, before_all = server.status()["sessions"][0]["id"], reconnects()
    load = subprocess.Popen(
        ["fio", "--name=resize", f"--directory={folder}", "--size=8m", "--rw=randrw", "--bs=4k-64k",
         "--ioengine=libaio", "--direct=1", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1",
         # What is being checked is not written meanwhile: serialize_overlap.
         "--verify_backlog=64", "--serialize_overlap=1", "--time_based", "--runtime=10"], stdout=subprocess.PIPE, text=True)
    size, rounds = size_of(device), 0
    while load.poll() is None and rounds < 32:
        before = written()
        wait_until("more is written", lambda: load.poll() is not None or written() > before + 20)
        if load.poll() is not None:
            break
        size += 1 << 20
        server.ctl("exports", "resize", "vol1", str(size))
        wait_until(f"the kernel's device has {size} bytes", lambda: size_of(device) == size)
        rounds += 1
    report = load.communicate()[0]
    check(load.returncode == 0 and "err= 0" in report, report[-2000:])
    check(rounds > 0, "the load ended before the first resize")
    check(server.status()["sessions"][0]["id"] == session, "the session is another")
    check(reconnects() == before_all, "a path was reconnected")
    step(f"{rounds} sizes under load, in one session")


def start_udev():
    if not os.path.exists(UDEVD):
        step("NOT CHECKED: no udev here, so nobody makes /dev/rnbd")
        return False
    os.makedirs("/run/udev/rules.d", exist_ok=True)
    shutil.copy(RULES, "/run/udev/rules.d/60-rnbd.rules")
    run(UDEVD, "--daemon")
    return True


def names_are_stable(device, there):
    for name in ("/dev/rnbd/host-a/vol1", "/dev/disk/by-id/rnbd-host-a-vol1"):
        if there:
            wait_until(f"{name} is {device}", lambda n=name: os.path.realpath(n) == device)
        else:
            wait_until(f"{name} is gone", lambda n=name: not os.path.exists(n))


with Lab() as lab:
    lab.random_file("vol1.img", 32 << 20)
    server = lab.server([export("vol1", lab.path("vol1.img"))])

    step("without the module: a reason, and the socket works")
    # The kernel would load it by itself.
    set_loader("/bin/false")
    client = lab.client(server, {"vol1": {"device": "auto", "device_connections": 3}})
    wait_until("it says why", lambda: "no NBD driver" in kernel(client)["reason"])
    check(kernel(client)["state"] == "failed" and kernel(client)["path"] == "", kernel(client))
    check("no NBD driver" in client.ctl("status").stdout, "rnbdctl status")
    check("no NBD driver" in client.log(), "log")
    run("nbdcopy", lab.uri("vol1"), lab.path("copy.img"))
    check(same(lab.path("copy.img"), lab.path("vol1.img")), "read over the socket")

    step("the module comes: it is attached by itself, under stable names")
    # First, as on any machine: the client may attach the moment that the module can be loaded, and
    # udev is not told of what was before it.
    with_udev = start_udev()
    if with_udev:
        lab.cleanups.append(lambda: run("udevadm", "control", "--exit", ok=False))
    run("modprobe", "nbd", "max_part=4")
    set_loader("/sbin/modprobe")
    device = attached(client)
    check(device in client.ctl("list").stdout and device in client.ctl("status").stdout, "rnbdctl")
    check(size_of(device) == 32 << 20, size_of(device))
    base = f"/sys/block/{os.path.basename(device)}/"
    with open(base + "backend") as backend:
        check(backend.read().strip() == "rnbd/host-a/vol1", "backend identifier")
    if with_udev:
        names_are_stable(device, True)

    step("another client keeps its hands off it, though its volume has the same name")
    other = lab.server([export("vol1", lab.path("other.img"), "16MiB")], name="other")
    second = lab.client(other, {"vol1": {"device": "auto"}}, name="second")
    wait_until("it says why", lambda: "another rnbd-client" in kernel(second)["reason"])
    check(kernel(second)["state"] == "failed" and kernel(second)["path"] == "", kernel(second))
    check(second.stop() == 0, "SIGTERM")
    check(kernel(client)["state"] == "attached" and kernel(client)["path"] == device, kernel(client))
    check(size_of(device) == os.path.getsize(lab.path("vol1.img")), size_of(device))
    run("cmp", device, lab.path("vol1.img"))

    step("a file system on it, and fio --verify")
    where = lab.path("mount")
    os.mkdir(where)
    run("mkfs.ext4", "-q", device)
    # ext4 would go on preparing what is not used yet, at any time.
    run("mount", "-o", "noinit_itable", device, where)
    lab.cleanups.append(lambda: run("umount", "-l", where, ok=False))
    verify_by_fio(where)
    lab.random_file("kept", 8 << 20)
    shutil.copy(lab.path("kept"), where + "/kept")
    kept = digest(where + "/kept")
    refused = client.ctl("unmap", "vol1", ok=False)
    check(refused.returncode == 5 and "mounted" in refused.stderr, refused.stderr)
    check(kernel(client)["state"] == "attached", "it stays")

    step("the export grows: so does the device, while it is mounted")
    run("sync")
    server.stop()
    os.truncate(lab.path("vol1.img"), 64 << 20)
    server.start()
    wait_until("the kernel knows", lambda: size_of(device) == 64 << 20)
    run("resize2fs", device)
    check(os.statvfs(where).f_blocks * os.statvfs(where).f_frsize > 50 << 20, "resize2fs")

    step("it grows under verified I/O: the device follows, the session is the same")
    resize_under_load(server, client, device, where)
    run("resize2fs", device)

    step("the client is killed and started: the mount outlives it")
    run("sync")
    wait_until_at_rest(device)
    client.kill()
    client.start()
    check(attached(client) == device, "the same device")
    run("sh", "-c", "echo 3 > /proc/sys/vm/drop_caches")
    check(digest(where + "/kept") == kept, "what was written before")
    verify_by_fio(where)

    def restart_with_blocks_of(count):
        server.stop()
        server.config_with(lambda config: config["exports"][0].update(block_size=count))
        server.start()

    step("the server comes back with larger blocks: the device waits, and loses nothing")
    run("sync")
    restart_with_blocks_of(4096)
    wait_until("it waits", lambda: "blocks of 4096 bytes at the server" in client.status()["devices"][0]["reason"])
    writer = subprocess.Popen(["sh", "-c", f"cp {lab.path('kept')} {where}/late && sync -f {where}/late"])
    wait_until("a write waits", lambda: ask(client, "explain", device="vol1")["requests"])
    restart_with_blocks_of(512)
    check(writer.wait(timeout=PATIENCE_S) == 0, "what waited is written")
    check(digest(where + "/late") == kept, "all of it")

    step("nor does a client that is started then take over what is mounted")
    wait_until_at_rest(device)
    client.kill()
    restart_with_blocks_of(4096)
    client.start()
    wait_until("it says why", lambda: "in use with blocks of 512 bytes" in kernel(client)["reason"])
    restart_with_blocks_of(512)
    check(attached(client) == device, "the same device, once it fits")
    run("sh", "-c", "echo 3 > /proc/sys/vm/drop_caches")
    check(digest(where + "/late") == kept, "what was written before")
    run("umount", where)
    run("e2fsck", "-fn", device)

    step("unmap detaches")
    client.ctl("unmap", "vol1")
    check(not os.path.exists(base + "pid"), "still attached")
    if with_udev:
        names_are_stable(device, False)

    step("one with large blocks is taken over for small ones, and goes on with large ones")
    restart_with_blocks_of(4096)
    client.ctl("map", "vol1", "--session", "host-a", "--device", "auto")
    device = attached(client)
    wait_until_at_rest(device)
    client.kill()
    restart_with_blocks_of(512)
    client.start()
    check(attached(client) == device, "the same device")
    check(run("blockdev", "--getss", device).stdout.strip() == "4096", "its blocks")
    opened = server.log().count("opened vol1")
    restart_with_blocks_of(4096)
    wait_until("it is open there", lambda: server.log().count("opened vol1") > opened)
    run("dd", f"if={device}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct")
    restart_with_blocks_of(512)
    client.ctl("unmap", "vol1")

    step("map --device attaches to the one that is asked for")
    client.ctl("map", "vol1", "--session", "host-a", "--device", "/dev/nbd5", "--ro")
    check(attached(client) == "/dev/nbd5", "the one that was asked for")
    check(run("blockdev", "--getro", "/dev/nbd5").stdout.strip() == "1", "read-only")
    run("mount", "-o", "ro", "/dev/nbd5", where)
    check(digest(where + "/kept") == kept, "what was written before")
    run("umount", where)
    client.ctl("unmap", "vol1")

    step("nbd-client -unix works too")
    client.ctl("map", "vol1", "--session", "host-a")
    socket_path = os.path.join(lab.folder, "vol1.sock")
    run("nbd-client", "-unix", socket_path, "/dev/nbd7", "-name", "vol1", "-connections", "2",
        "-timeout", "2000000")
    run("e2fsck", "-fn", "/dev/nbd7")
    run("mount", "/dev/nbd7", where)
    check(digest(where + "/kept") == kept, "what was written before")
    verify_by_fio(where)
    run("umount", where)
    run("nbd-client", "-d", "/dev/nbd7")
    wait_until("it is free", lambda: client.ctl("unmap", "vol1", ok=False).returncode == 0)

    step("a server that takes small requests only gets no larger ones")
    small = lab.server([export("small", lab.path("small.img"), "16MiB", session="host-b")], name="small",
                       queue_depth=4, max_io_size="64KiB")
    client.ctl("map", "small", "--session", "host-b", "--path", f"127.0.0.1:{small.port}", "--device", "auto")
    device = attached(client, "small")
    run("dd", "if=/dev/zero", f"of={device}", "bs=4M", "count=2", "oflag=direct")
    run("dd", f"if={device}", "of=/dev/null", "bs=4M", "count=2", "iflag=direct")
    client.ctl("unmap", "small")
    number = device.removeprefix("/dev/nbd")
    client.ctl("map", "vol1", "--session", "host-a", "--device", device)
    attached(client)
    with open(f"/sys/block/nbd{number}/queue/max_sectors_kb") as limit:
        check(int(limit.read()) >= 1280, "what another server takes is not limited")
    client.ctl("unmap", "vol1")

    step("an unmap flushes what was written to a partition that somebody has open")
    client.ctl("map", "vol1", "--session", "host-a", "--device", "auto")
    device = attached(client)
    # It is in the kernel's memory alone: nothing is written to the device.
    run("addpart", device, "1", str(PARTITION_AT // 512), str(PARTITION_BYTES // 512))
    written = os.urandom(PARTITION_BYTES)
    with open(device + "p1", "r+b", buffering=0) as partition:
        partition.write(written)
        client.ctl("unmap", "vol1")
        with open(lab.path("vol1.img"), "rb") as volume:
            volume.seek(PARTITION_AT)
            check(volume.read(PARTITION_BYTES) == written, "it is in the volume's file")

    step("an unmap that could not flush says so")
    client.ctl("map", "vol1", "--session", "host-a", "--device", "auto")
    attached(client)
    server.kill()
    told = client.ctl("unmap", "vol1", ok=False)
    check(told.returncode != 0 and "vol1 is unmapped, but" in told.stderr and "flush" in told.stderr, told.stderr)
    server.start()

    step("a dead server does not keep the client from ending: what hangs fails")
    client.ctl("map", "vol1", "--session", "host-a", "--device", "auto")
    device = attached(client)
    server.kill()
    writer = subprocess.Popen(["dd", "if=/dev/zero", f"of={device}", "bs=4k", "count=4",
                               "oflag=direct"], stderr=subprocess.PIPE)
    wait_until("the write hangs", lambda: ask(client, "explain", device="vol1")["requests"])
    check(client.stop() == 0, "SIGTERM")
    writer.wait(timeout=PATIENCE_S)
    check(writer.returncode != 0, "the write cannot have succeeded")
print("ok")
