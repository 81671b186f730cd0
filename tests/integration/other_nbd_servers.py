"""Exports whose storage is on an NBD server of somebody else, which a test can stop: qemu-nbd."""
from harness import *

need("qemu-nbd", "qemu-img")
if built_with("LIBNBD_FOUND") != "1":
    skip("the server was built without libnbd")


def serve(lab, name):
    """A new image of 64 MiB and its server; killed at the end."""
    run("qemu-img", "create", "-q", "-f", "raw", lab.path(name), "64M")
    process = subprocess.Popen(["qemu-nbd", "-f", "raw", "-t", "-k", lab.path(f"{name}.qemu"), lab.path(name)])
    lab.cleanups.append(process.wait)
    lab.cleanups.append(process.kill)
    return process


def export_of(lab, name):
    """For Lab.server(): what serve() serves."""
    return {"name": name, "storage": {"kind": "nbd", "uri": f"nbd+unix:///?socket={lab.path(name)}.qemu"},
            "allow": [{"session": "host-a", "access": "rw"}]}
