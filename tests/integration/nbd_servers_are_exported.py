"""A qcow2 that qemu-nbd serves is an export like any other, and outlives a restart of qemu-nbd."""

import os
import subprocess

from fio import fio_verify
from harness import Lab, built_with, check, need, run, skip, wait_until

SIZE = 256 << 20

need("qemu-nbd", "qemu-img", "nbdcopy", "nbdinfo", "fio")
if built_with("LIBNBD_FOUND") != "1":
    skip("the server was built without libnbd")

with Lab() as lab:
    image = lab.path("disk.qcow2")
    socket = lab.path("qemu.sock")
    source = lab.random_file("source", 32 << 20)
    run("qemu-img", "create", "-q", "-f", "qcow2", image, str(SIZE))

    def serve():
        if os.path.exists(socket):
            os.unlink(socket)
        process = subprocess.Popen(["qemu-nbd", "-f", "qcow2", "-t", "--discard=unmap", "-k", socket, image])
        lab.cleanups.append(process.kill)
        return process

    def status():
        return server.status()["exports"][0]

    allow = [{"session": "host-a", "access": "rw"}]
    server = lab.server([{"name": "vol", "storage": {"kind": "nbd", "uri": f"nbd+unix:///?socket={socket}"},
                          "allow": allow}])
    check(status()["state"] == "waiting", f"it waits for its NBD server: {status()}")
    check("qemu.sock" in status()["reason"], f"and says for which: {status()}")
    qemu = serve()
    wait_until("the export is ready", lambda: status()["state"] == "ready")
    check(status()["kind"] == "nbd" and "qemu.sock" in status()["path"], f"status tells: {status()}")

    lab.client(server, {"vol": {}})
    uri = lab.uri("vol")
    check(run("nbdinfo", "--size", uri).stdout.strip() == str(SIZE), "it has the disk's size")
    fio_verify(uri, int(os.environ.get("RNBD_FIO_SECONDS", "5")))
    run("nbdcopy", "--flush", source, uri)

    # Killed and started again, between requests: nobody sees an error.
    qemu.kill()
    qemu.wait()
    wait_until("status says that it is away, and names it once", lambda: "connecting again after: " in (
        reason := status()["reason"]) and "Connection refused" in reason and reason.count("nbd+unix:") == 1)
    wait_until("the log, too", lambda: "vol: requests wait: " in server.log())
    reading = subprocess.Popen(["nbdcopy", uri, lab.path("copy")])
    qemu = serve()
    check(reading.wait(timeout=120) == 0, "reads wait for the NBD server")
    check(status()["state"] == "ready" and status()["reason"] == "", f"it is there again: {status()}")
    wait_until("the log says so", lambda: "vol: requests go on" in server.log())
    with open(source, "rb") as wanted, open(lab.path("copy"), "rb") as got:
        check(wanted.read() == got.read(32 << 20), "and have what was flushed")

    # In the qcow2 itself, by qemu's own reader.
    run("nbdsh", "-u", uri, "-c", "h.flush()")
    qemu.terminate()
    qemu.wait()
    run("qemu-img", "convert", "-f", "qcow2", "-O", "raw", image, lab.path("raw"))
    check(run("cmp", "-n", str(32 << 20), source, lab.path("raw"), ok=False).returncode == 0,
          "the disk has what was written")
    qemu = serve()
    wait_until("it is ready", lambda: status()["state"] == "ready" and status()["reason"] == "")

    # Back with another size: it is another export, and the log says why, naming its server once.
    qemu.terminate()
    qemu.wait()
    run("qemu-img", "resize", "-q", "-f", "qcow2", image, str(2 * SIZE))
    serve()
    line = wait_until("the log says that it has changed", lambda: next(
        (line for line in server.log().splitlines() if "its size, its blocks or its rights" in line), None))
    check("vol: waiting: " in line and line.count("nbd+unix:") == 1, f"once: {line}")
    wait_until("it is there with the new size", lambda: status()["state"] == "ready" and status()["size_bytes"] == 2 * SIZE)
