"""A disk that can be polled, in a guest: what is written and read with polled_io is right, under load
from several sides, and the server counts what it polled for; a file on that disk is served as any other.

    RNBD_VM=1 RNBD_BUILD=build-release python3 tests/vm/polled_io.py
"""

import os
import sys

if sys.argv[1:2] == ["guest"]:
    from guest import *  # noqa: F403
else:
    from host import *  # noqa: F403

import openmetrics  # noqa: E402

SIZE = 16 << 20
DISK = "/dev/nvme0n1"


def polled(listener):
    return openmetrics.scrape(listener)["rnbd_server_polled_io"].total("_total")


def serve(lab, backing, image, name):
    """Everything is written through the server and read again. How much of it was polled for."""
    listener = lab.path(f"{name}.metrics")
    server = lab.server([export("vol", backing, io="direct", block_size=4096),
                         export("memory", lab.path("memory"), 1 << 20)], name=name,
                        polled_io=True, metrics={"listen": f"unix:{listener}"})
    client = lab.client(server, {"vol": {}, "memory": {}}, name=f"of-{name}")
    uri = lab.uri("vol", f"of-{name}")
    run("nbdcopy", "--flush", "--request-size", "65536", image, uri)
    run("nbdcopy", uri, lab.path("copy"))
    run("cmp", "-n", str(SIZE), image, lab.path("copy"))
    os.unlink(lab.path("copy"))
    # Also beside what is not polled for: flushes, writes with FUA, another export.
    run("fio", "--name=v", "--ioengine=nbd", f"--uri={uri}", "--rw=randrw", "--bs=4k", "--size=4m", "--iodepth=16",
        "--verify=crc32c", "--fsync=16", "--name=m", "--ioengine=nbd", f"--uri={lab.uri('memory', f'of-{name}')}",
        "--rw=randrw", "--bs=4k", "--size=1m", "--iodepth=4", "--verify=crc32c", cwd=lab.path(""))
    step(f"{name}: polled for {polled(listener):.0f}")
    count = polled(listener)
    client.stop()
    server.stop()
    return count


def in_guest(image):
    run("modprobe", "nvme", "poll_queues=2")
    wait_until("the disk is there", lambda: os.path.exists(DISK))
    with open("/sys/block/nvme0n1/queue/io_poll") as told:
        check(told.read().strip() == "1", "the disk can be polled")
    with Lab() as lab:
        check(serve(lab, DISK, image, "raw") >= 2 * SIZE // (256 << 10), "reads and writes were polled for")
        run("modprobe", "ext4")
        run("mkfs.ext4", "-q", DISK)
        os.mkdir(lab.path("mounted"))
        run("mount", DISK, lab.path("mounted"))
        try:
            run("truncate", "-s", str(SIZE), lab.path("mounted/file"))
            check(serve(lab, lab.path("mounted/file"), image, "ext4") == 0, "of a file nothing was")
        finally:
            run("umount", lab.path("mounted"))


def main():
    need_root()
    need("qemu-system-x86_64", "nbdcopy", "fio", "mkfs.ext4")
    with Lab() as lab:
        image = lab.random_file("image", SIZE)
        disk = lab.path("disk")
        run("truncate", "-s", "64M", disk)
        guest(lab, ["-c", "2", "-m", "1024", "-t", "600", "-d", disk], this_script(__file__, image))


if sys.argv[1:2] == ["guest"]:
    in_guest(sys.argv[2])
else:
    main()
