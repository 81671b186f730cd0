"""nbdkit serves a volume through the plugin, bare and behind a filter, to tools that know NBD."""

import errno
import json
import os
import shutil
import subprocess

from fio import fio_verify
from harness import BUILD, Lab, built_with, check, export, need, run, same, skip, wait_until
from nbd_clients import error_of, nbd

PLUGIN = os.path.join(BUILD, "nbdkit/nbdkit-rnbd-plugin.so")
SIZE = 32 << 20

need("nbdkit", "nbdinfo", "nbdcopy", "nbdsh", "fio")
if not os.path.exists(PLUGIN):
    skip("the plugin was not built: nbdkit-plugin-dev is not installed")
if built_with("RNBD_SANITIZE"):
    skip("nbdkit is not sanitized: it loads a sanitized plugin, but does not end with one")


def encrypt():
    """qemu measures its key derivation by its own time in user mode, of which the kernel may not have seen any yet."""
    words = ["qemu-img", "convert", "-f", "raw", "-O", "luks", "--object", "secret,id=key,data=secret",
             "-o", "key-secret=key,iter-time=10", content, lab.path("luks")]
    for _ in range(20):
        made = run(*words, ok=False)
        if "Unable to get accurate CPU usage" not in made.stderr:
            break
    check(made.returncode == 0, made)


with Lab() as lab:
    image = lab.random_file("image", SIZE)
    backing = lab.path("vol")
    with open(backing, "wb") as out:
        out.truncate(SIZE)
    gate = lab.path("gate")
    memory = {"kind": "memory", "size": "1MiB"}
    allow = [{"session": "host-a", "access": "rw"}]
    server = lab.server([export("vol", backing), export("ro", image, access="ro"),
                         export("fio", lab.path("fio"), "256MiB"),
                         {"name": "memory", "allow": allow, "storage": memory},
                         {"name": "stuck", "allow": allow, "storage": {
                             "kind": "delay", "of": memory, "gate": gate, "gate_operations": "all"}}])

    def plugin(volume, *words, session="host-a", ok=True, filters=()):
        """The command's words; the URI."""
        socket = lab.path(f"{volume}.sock")
        if os.path.exists(socket):
            os.unlink(socket)
        command = ["nbdkit", "-f", "-U", socket, *filters, PLUGIN, volume, f"session={session}",
                   f"path=127.0.0.1:{server.port}", *words]
        if not ok:
            return run(*command, ok=False)
        process = subprocess.Popen(command)
        lab.cleanups.append(process.kill)
        wait_until("nbdkit listens", lambda: process.poll() is not None or os.path.exists(socket))
        check(process.poll() is None, "nbdkit runs")
        uri = f"nbd+unix:///?socket={socket}"
        run("nbdinfo", "--size", uri)  # it listens before the volume is open
        return process, uri

    def in_the_background(*words):
        return run("timeout", "60", "nbdkit", "-U", lab.path("background.sock"), PLUGIN, *words,
                   "session=host-a", ok=False)

    def stop(process):
        process.terminate()
        check(process.wait(timeout=60) == 0, "nbdkit ends well")

    def ends_although_a_read_waits(process, uri):
        read = subprocess.Popen(["nbdcopy", uri, "null:"], stderr=subprocess.PIPE, text=True)
        lab.cleanups.append(read.kill)
        try:
            read.wait(timeout=2)  # it cannot end
        except subprocess.TimeoutExpired:
            pass
        check(read.poll() is None, "it waits")
        process.terminate()
        said = read.communicate(timeout=60)[1]
        check(read.returncode != 0, f"what waited fails: {said}")
        check(process.wait(timeout=60) == 0, "nbdkit ends well")

    # Who starts it hears of what cannot be opened, also before it goes to the background. (Other tests have other
    # addresses without a server: a session is its name and where it leads.)
    for words, why in (("nosuch", f"path=127.0.0.1:{server.port}"), "no such export"), \
                      (("vol", f"path=127.0.0.1:{server.port}", "wait=0"), "found 0, expected 1 to 86400"), \
                      (("vol", "session=host-b"), "session: found host-b and host-a, expected one"), \
                      (("vol", "volume=ro"), "volume: found vol and ro, expected one"), \
                      (("vol", "path=127.0.0.4:1", "wait=3"), "refused"), \
                      (("vol", "path=127.0.0.4:1", "wait=3", "--run", "nbdinfo $uri"), "refused"):
        refused = in_the_background(*words)
        check(refused.returncode == 1 and why in refused.stderr, f"{words}: {refused}")
        check(not os.path.exists(lab.path("background.sock")), "nothing of it stays")

    process, uri = plugin("vol")
    about = json.loads(run("nbdinfo", "--json", uri).stdout)["exports"][0]
    check(about["export-size"] == SIZE, f"the size is passed on: {about}")
    for ability in ("can_flush", "can_fua", "can_multi_conn", "can_zero", "can_trim"):
        check(about[ability], f"{ability}: {about}")
    check(not about["is_read_only"], "it can be written")
    check(about["block_size_minimum"] == 512, f"block sizes are passed on: {about}")

    run("nbdcopy", "--flush", image, uri)
    check(same(image, backing), "what was copied in is in the storage")
    run("nbdcopy", uri, lab.path("copy"))
    check(same(image, lab.path("copy")), "and comes out again")

    shell = f"""
h.connect_uri("{uri}")
h.zero(1 << 20, 1 << 20)
h.trim(1 << 20, 4 << 20, nbd.CMD_FLAG_FUA)
h.pwrite(b"f" * 4096, 8 << 20, nbd.CMD_FLAG_FUA)
h.flush()
"""
    run("nbdsh", "-c", shell)
    with open(backing, "rb") as storage:
        storage.seek(1 << 20)
        check(storage.read(1 << 20) == bytes(1 << 20), "zeroes are in the storage")
        storage.seek(8 << 20)
        check(storage.read(4096) == b"f" * 4096, "a write with FUA is in the storage")
    kinds = {part["type"] for part in json.loads(run("nbdinfo", "--map", "--json", uri).stdout)}
    check(0 in kinds and kinds - {0}, f"data and holes are told apart: {kinds}")

    stop(process)

    process, uri = plugin("fio")
    fio_verify(uri, int(os.environ.get("RNBD_FIO_SECONDS", "5")))
    stop(process)

    # Behind a filter: what is written stays in front of it.
    before = run("sha256sum", backing).stdout
    process, uri = plugin("vol", filters=["--filter=cow"])
    run("nbdcopy", "--flush", image, uri)
    run("nbdcopy", uri, lab.path("copy"))
    check(same(image, lab.path("copy")), "the filter has what was written")
    stop(process)
    check(run("sha256sum", backing).stdout == before, "the volume behind it was left alone")

    # A filter that reads ahead needs one that keeps what it has read, since the plugin keeps nothing.
    process, uri = plugin("vol", filters=["--filter=readahead", "--filter=cache"])
    client = nbd.NBD()
    client.connect_uri(uri)
    with open(backing, "rb") as storage:
        for at in range(0, 1 << 20, 256 << 10):
            check(client.pread(256 << 10, at) == storage.read(256 << 10), "what is read is right")
    wait_until("more was read than was asked for",
               lambda: server.status()["sessions"][0]["read_bytes"] > 1 << 20)
    client.shutdown()
    run("nbdcopy", uri, lab.path("copy"))
    check(same(backing, lab.path("copy")), "what was read ahead is right")
    stop(process)

    # Filters that look for something on the volume read parts of blocks: blocksize is next to the plugin.
    content = lab.random_file("content", 8 << 20)
    run("nbdkit", "-U", "-", "partitioning", content, "partition-type=gpt", "--run", f"nbdcopy $uri {lab.path('disk')}")
    with open(lab.path("disk"), "r+b") as disk:
        check(disk.read(1024)[512:520] == b"EFI PART", "it has a GPT")
        disk.truncate(SIZE)
    process, uri = plugin("vol")
    run("nbdcopy", "--flush", lab.path("disk"), uri)
    stop(process)
    process, uri = plugin("vol", "partition=1", filters=["--filter=partition", "--filter=blocksize"])
    check(int(run("nbdinfo", "--size", uri).stdout) == 8 << 20, "the partition has its size")
    run("nbdcopy", uri, lab.path("copy"))
    check(same(content, lab.path("copy")), "and its content")
    run("nbdsh", "-u", uri, "-c", "h.pwrite(b'part of a block', 12345); h.flush()")
    check(run("nbdsh", "-u", uri, "-c", "print(h.pread(15, 12345).decode())").stdout == "part of a block\n",
          "any byte of it can be written")
    stop(process)

    if shutil.which("qemu-img"):
        encrypt()
        with open(lab.path("luks"), "r+b") as disk:
            disk.truncate(SIZE)
        process, uri = plugin("vol")
        run("nbdcopy", "--flush", lab.path("luks"), uri)
        stop(process)
        process, uri = plugin("vol", "passphrase=secret", filters=["--filter=luks", "--filter=blocksize"])
        run("nbdcopy", uri, lab.path("copy"))
        with open(content, "rb") as plain, open(lab.path("copy"), "rb") as opened:
            check(plain.read() == opened.read(8 << 20), "what was encrypted is read")
        stop(process)
    else:
        print("NOT CHECKED: luks, since qemu-img is not installed")

    # While the server is gone requests wait.
    rate = lab.path("rate")
    process, uri = plugin("vol", "heartbeat-interval=1s", "heartbeat-timeout=10s", "rate=4M", "burstiness=0.1",
                          f"rate-file={rate}", filters=["--filter=rate"])
    copy = subprocess.Popen(["nbdcopy", "--flush", image, uri])
    # A volume that is opened while the new server still waits for what the old one had locked is
    # refused: the copy has it open before.
    wait_until("the copy has begun", lambda: any(
        session["writes"] > 0 for session in server.status()["sessions"]))
    check(copy.poll() is None, "half a megabyte a second takes more than a minute for it")
    server.kill()
    server.start()
    with open(f"{rate}.new", "w") as out:
        out.write("8G\n")
    os.rename(f"{rate}.new", rate)
    check(copy.wait(timeout=600) == 0, "a copy outlives its server")
    check(same(image, backing), "and is whole")
    stop(process)

    # While it is gone for good they fail when nbdkit is told to end, which waits for them.
    process, uri = plugin("vol", "heartbeat-interval=100ms", "heartbeat-timeout=500ms")
    server.kill()
    ends_although_a_read_waits(process, uri)
    server.start()

    # Those that waited long enough have an error that tells a client what it is.
    process, uri = plugin("vol", "hold-time=100ms")
    waits = subprocess.Popen(["nbdsh", "-u", uri, "-c", """
print("connected", flush=True)
input()
for request in (lambda: h.pread(512, 0), lambda: h.pwrite(bytes(512), 0), lambda: h.flush()):
    try:
        request()
    except nbd.Error as error:
        print(error.errno)
"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lab.cleanups.append(waits.kill)
    check(waits.stdout.readline() == "connected\n", "it is connected")
    server.kill()
    told = waits.communicate("go\n", timeout=60)[0].split()
    check(told == ["EIO"] * 3, f"without a server: {told}")
    stop(process)
    server.start()

    # An export whose file was away serves those that have it open as soon as it is back.
    process, uri = plugin("vol")
    away = subprocess.Popen(["nbdsh", "-u", uri, "-c", """
h.pread(512, 0)
print("read", flush=True)
input()
h.pread(512, 0)
"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lab.cleanups.append(away.kill)
    check(away.stdout.readline() == "read\n", "it has read")
    state = lambda: next(one for one in server.status()["exports"] if one["name"] == "vol")["state"]
    os.rename(backing, backing + ".away")
    wait_until("the file is missed", lambda: state() == "waiting")
    os.rename(backing + ".away", backing)
    wait_until("it is back", lambda: state() == "ready")
    away.communicate("go\n", timeout=60)
    check(away.returncode == 0, "the first request is answered")
    stop(process)

    # What waits also fails when nbdkit is told to end while not the server is gone, but the export.
    process, uri = plugin("fio")
    server.ctl("exports", "remove", "fio", "--force")
    ends_although_a_read_waits(process, uri)
    # And when there was none yet: a start that waits ends.
    process = subprocess.Popen(["nbdkit", "-f", "-U", lab.path("none.sock"), PLUGIN, "vol", "session=host-a", "wait=86400",
                                "path=127.0.0.4:1"])
    lab.cleanups.append(process.kill)
    def has_a_session():
        links = [f"/proc/{process.pid}/fd/{number}" for number in os.listdir(f"/proc/{process.pid}/fd")]
        return any("io_uring" in os.readlink(link) for link in links if os.path.islink(link))
    wait_until("it tries to connect", has_a_session)
    process.terminate()
    check(process.wait(timeout=60) != 0, "it ends")

    # Or when its server lives, and the storage answers nothing.
    process, uri = plugin("stuck", "close-time=100ms")
    with open(gate, "w"):
        ends_although_a_read_waits(process, uri)
    os.unlink(gate)

    # What the server has lost is told to each client once; to one that comes later no more.
    process, uri = plugin("memory")
    clients = [nbd.NBD() for _ in range(3)]
    for client in clients[:2]:
        client.connect_uri(uri)
        client.pwrite(b"m" * 4096, 0)
    server.kill()
    server.start()
    check([error_of(client.flush) for client in clients[:2]] == [errno.EIO] * 2, "both hear of it")
    clients[2].connect_uri(uri)
    check([error_of(client.flush) for client in clients] == [0] * 3, "once")
    for client in clients:
        client.shutdown()
    stop(process)

    process, uri = plugin("ro", "readonly=true")
    check(json.loads(run("nbdinfo", "--json", uri).stdout)["exports"][0]["is_read_only"], "it is read-only")
    stop(process)

    # As a file, any byte of which may be written.
    if shutil.which("nbdfuse") and os.path.exists("/dev/fuse"):
        disk = lab.path("disk.img")
        with open(disk, "w"):
            pass
        mounted = subprocess.Popen(["nbdfuse", disk, "[", "nbdkit", "--filter=blocksize", PLUGIN, "vol", "session=host-a",
                                    f"path=127.0.0.1:{server.port}", "]"])
        lab.cleanups.append(lambda: run("umount", "-l", disk, ok=False))
        wait_until("it is mounted", lambda: mounted.poll() is not None or os.path.getsize(disk) == SIZE)
        check(mounted.poll() is None, "nbdfuse runs")
        with open(disk, "r+b") as file:
            file.seek(12345)
            file.write(b"part of a block")
            file.flush()
            os.fsync(file.fileno())
        with open(backing, "rb") as storage:
            storage.seek(12345)
            check(storage.read(15) == b"part of a block", "it is in the storage")
        run("fusermount3", "-u", disk)
        check(mounted.wait(timeout=60) == 0, "nbdfuse ends well")
    else:
        print("NOT CHECKED: nbdfuse, since it or /dev/fuse is not there")

    wrong = plugin("no-such", ok=False)
    check(wrong.returncode != 0 and "no-such" in wrong.stderr, f"a wrong volume is explained: {wrong}")
    wrong = plugin("vol", "hold-time=5", ok=False)
    check(wrong.returncode != 0 and "expected a duration" in wrong.stderr, f"a wrong value is explained: {wrong}")
    wrong = plugin("vol", "colour=red", ok=False)
    check(wrong.returncode != 0 and "expected one of" in wrong.stderr and "or of session, path" in wrong.stderr,
          f"a wrong key is explained: {wrong}")
    wrong = plugin("vol", session="a b", ok=False)
    check(wrong.returncode != 0 and 'session: found "a b", expected a session name' in wrong.stderr,
          f"a wrong session is explained: {wrong}")
