"""An NBD server that takes one connection at a time (nbdkit with its filter `limit`) ends what a killed rnbd-server had sent before the next one
is connected: no late write lands over a newer one."""
from harness import *
from nbd_clients import *

need("nbdkit")
if built_with("LIBNBD_FOUND") != "1":
    skip("the server was built without libnbd")
if subprocess.run(["nbdkit", "--filter=limit", "eval", "--dump-plugin"], capture_output=True).returncode != 0:
    skip("nbdkit has no plugin eval or no filter limit")


def slow_server(lab):
    """Where there is a file `slow`, a write is begun, and done only when that is gone."""
    image, slow, begun, uri = lab.path("image"), lab.path("slow"), lab.path("begun"), lab.path("slow.nbd")
    with open(image, "wb") as out:
        out.truncate(1 << 20)
    copy = f"dd if=/dev/stdin of={image} bs=4096 seek=$(($4/4096)) conv=notrunc status=none"
    process = subprocess.Popen([
        "nbdkit", "--foreground", "--unix", uri, "--filter=limit", "eval", "limit=1", f"get_size=stat -c %s {image}",
        f"pread=dd if={image} bs=1 skip=$4 count=$3 status=none", "can_write=true", "can_flush=true", "thread_model=echo parallel",
        f"pwrite=if [ -e {slow} ]; then touch {begun}; while [ -e {slow} ]; do sleep 0.05; done; sleep 0.5; fi; {copy}", "flush=true"])
    lab.cleanups.append(process.wait)
    lab.cleanups.append(process.kill)
    wait_until("nbdkit listens", lambda: os.path.exists(uri))
    return f"nbd+unix:///?socket={uri}", slow, begun


with Lab() as lab:
    uri, slow, begun = slow_server(lab)
    server = lab.server([{"name": "vol", "storage": {"kind": "nbd", "uri": uri},
                          "allow": [{"session": "host-a", "access": "rw"}]}])
    client = lab.client(server, {"vol": {}})
    h = connected(lab, "vol")
    open(slow, "w").close()
    older = h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b"A" * 4096)), 0)
    wait_until("it is under way there", lambda: h.poll(0) is not None and os.path.exists(begun))
    server.kill()
    server.start()
    time.sleep(0.5)  # in which the next one could be connected
    check(not h.aio_command_completed(older), "nobody has answered it")
    os.unlink(slow)
    wait_until("it is answered", lambda: h.poll(0) is not None and h.aio_command_completed(older))
    h.pwrite(b"B" * 4096, 0)
    h.flush()
    time.sleep(1)  # in which what was late would have come
    check(h.pread(4096, 0) == b"B" * 4096, "the newest write is there")
