"""A block device, direct and buffered: data, zeroes and trims arrive on it as on a file."""
import shutil
import subprocess

from harness import *
from nbd_clients import *

need_root()
need("losetup", "nbdcopy", "qemu-img", "blkdiscard")

MiB = 1 << 20


def loop_device(lab, backing, block_size):
    if shutil.which("modprobe"):  # of a kernel that has no modules there may be none
        run("modprobe", "loop", ok=False)
    made = subprocess.run(["losetup", "--find", "--show", "--sector-size", str(block_size), backing],
                          capture_output=True, text=True)
    if made.returncode != 0:
        skip(f"no loop device here: {made.stderr.strip()}")
    device = made.stdout.strip()
    lab.cleanups.append(lambda: run("losetup", "--detach", device, ok=False))
    return device


with Lab() as lab:
    exports, devices = [], {}
    for name, block_size, io in (("direct", 512, "direct"), ("four-k", 4096, "direct"), ("buffered", 512, "buffered")):
        backing = lab.random_file(f"{name}.img", 16 * MiB)
        device = loop_device(lab, backing, block_size)
        exports.append(export(name, device, io=io, block_size=block_size))
        devices[name] = dict(device=device, block_size=block_size)
    server = lab.server(exports)
    client = lab.client(server, {name: {} for name in devices})
    source = lab.random_file("source.img", 16 * MiB)
    for name, one in devices.items():
        run("nbdcopy", source, lab.uri(name))
        run("cmp", source, one["device"])
        run("qemu-img", "compare", "-f", "raw", "-F", "raw", source, lab.uri(name))

        h = connected(lab, name)
        check(h.get_size() == 16 * MiB, "the size is the device's")
        check(h.get_block_size(nbd.SIZE_MINIMUM) == one["block_size"], "and so is the block size")
        h.pwrite(b"\x5a" * MiB, 2 * MiB, nbd.CMD_FLAG_FUA)
        h.zero(MiB, 4 * MiB)
        h.zero(MiB, 6 * MiB, nbd.CMD_FLAG_NO_HOLE)
        if h.can_trim():
            h.trim(MiB, 8 * MiB)
        h.flush()
        with open(one["device"], "rb") as raw:
            raw.seek(2 * MiB)
            check(raw.read(MiB) == b"\x5a" * MiB, f"{name}: the write is there")
            raw.seek(4 * MiB)
            check(raw.read(MiB) == bytes(MiB), f"{name}: zeroes")
            raw.seek(6 * MiB)
            check(raw.read(MiB) == bytes(MiB), f"{name}: zeroes without a hole")
        h.shutdown()
    # A mounted or otherwise used device is not taken from its user.
    second = lab.server([dict(exports[0], name="again")], name="second")
    wait_until("the second server says who has it", lambda: any(
        e["state"] == "waiting" for e in second.status()["exports"]))
    second.stop()

    # What was given up is free at once, for a file system or for the server that is started next.
    def is_free(name, when):
        try:
            os.close(os.open(devices[name]["device"], os.O_RDWR | os.O_EXCL))
        except OSError as error:
            raise AssertionError(f"{name} is not free after {when}: {error}")

    client.ctl("unmap", "direct")
    server.ctl("exports", "remove", "direct")
    is_free("direct", "its export was removed")
    client.stop()
    server.stop()
    for name in devices:
        is_free(name, "the server ended")
