"""A guest writes more dirty memory back to a block device of its rnbd-client than there is memory, and has the
client's own memory taken away, which could only go to another device of that client: it gets through, and no byte
is wrong. The server is on this machine.

    RNBD_VM=1 RNBD_BUILD=build-release python3 tests/vm/memory_shortage.py
"""

import errno
import os
import sys

if sys.argv[1:2] == ["guest"]:
    from guest import *  # noqa: F403
else:
    from host import *  # noqa: F403

MIB = 1 << 20
MEMORY_MIB = 512
GROUP = "/sys/fs/cgroup/rnbd"
SWAP, FILES = 128 * MIB, 1024 * MIB


class Elsewhere:
    """A server of the machine around the guest."""

    def __init__(self, port):
        self.port = port


def available():
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


def content(number):
    return number.to_bytes(8, "little") * (MIB // 8)


def write_files(folder, size):
    """Dirty memory, much more than the kernel can keep: file and content by number."""
    for number in range(size // MIB):
        with open(f"{folder}/{number}", "wb") as out:
            out.write(content(number))


def check_files(folder, size):
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("3")
    for number in range(size // MIB):
        with open(f"{folder}/{number}", "rb") as file:
            check(file.read() == content(number), f"file {number} is as it was written")


def make_group():
    """For a process whose memory can be taken away, and the command that begins in it."""
    run("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
    with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as control:
        control.write("+memory")
    os.mkdir(GROUP)
    return ["sh", "-c", f'echo $$ >{GROUP}/cgroup.procs; exec "$@"', "sh"]


def take_memory_away():
    """All that the kernel can: of what is not locked, to the disks and to swap."""
    try:
        with open(f"{GROUP}/memory.reclaim", "w") as reclaim:
            reclaim.write(str(256 * MIB))
    except OSError as error:
        check(error.errno == errno.EAGAIN, f"it has less than that: {error}")


def in_the_guest(port):
    run("modprobe", "e1000e")
    run("modprobe", "nbd")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "address", "add", "10.0.2.15/24", "dev", "eth0")
    # Memory is dirty for as long as the kernel lets it.
    for name, value in (("dirty_background_ratio", 60), ("dirty_ratio", 80)):
        with open(f"/proc/sys/vm/{name}", "w") as setting:
            setting.write(str(value))
    with Lab() as lab:
        client = lab.client(Elsewhere(port), {name: {"device": "auto"} for name in ("swap", "files")},
                            host="10.0.2.2", prefix=make_group())

        def device(name):
            return next(d for d in client.status()["devices"] if d["name"] == name)["kernel"]

        for name in ("swap", "files"):
            wait_until(f"{name} is attached", lambda n=name: device(n)["state"] == "attached", SLOW_S)

        folder = lab.path("mount")
        os.mkdir(folder)
        run("mkfs.ext4", "-q", device("files")["path"])
        run("mount", device("files")["path"], folder)
        size = available() + 100 * MIB
        write_files(folder, size)
        step(f"{size // MIB} MiB of files are written")
        check_files(folder, size)
        step("and are right")

        run("mkswap", device("swap")["path"])
        run("swapon", device("swap")["path"])
        take_memory_away()
        check_files(folder, 16 * MIB)
        step("the client serves on")
        run("swapoff", device("swap")["path"])
        run("umount", folder)
        client.stop()


def main():
    need_root()
    need("qemu-system-x86_64", "mkfs.ext4", "mkswap")
    with Lab() as lab:
        server = lab.server([export("swap", lab.path("swap"), SWAP), export("files", lab.path("files"), FILES)])
        guest(lab, ["-m", str(MEMORY_MIB), "-t", "1100", "-p", str(free_port())],
              this_script(__file__, str(server.port)))


if sys.argv[1:2] == ["guest"]:
    in_the_guest(int(sys.argv[2]))
else:
    main()
