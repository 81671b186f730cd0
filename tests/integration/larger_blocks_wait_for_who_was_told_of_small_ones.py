"""A volume that comes back with larger blocks is not used by who was told of smaller ones: what is asked waits, and nothing
fails, until the blocks are as before, or nobody is there who was told of them. Newcomers are told why."""
from harness import *
from nbd_clients import *

BLOCK = 512
with Lab() as lab:
    server = lab.server([export("vol", lab.path("image"), "8MiB", io="buffered", block_size=BLOCK)])
    client = lab.client(server, {"vol": {}})

    def device():
        return client.status()["devices"][0]

    def restart(block_size):
        server.stop()
        server.config_with(lambda config: config["exports"][0].update(block_size=block_size))
        server.start()

    def waits():
        return device()["state"] == "reopening" and "blocks of 4096 bytes at the server" in device()["reason"]

    wait_until("it is open", lambda: device()["state"] == "open")
    small = connected(lab, "vol")
    check(small.get_block_size(nbd.SIZE_MINIMUM) == BLOCK, "it is told of small blocks")
    small.pwrite(b"a" * BLOCK, BLOCK)

    restart(4096)
    wait_until("it says why it waits", waits)
    held = small.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b"h" * BLOCK)), 3 * BLOCK)
    try:
        connected(lab, "vol")
        check(False, "a newcomer is refused meanwhile")
    except nbd.Error as error:
        check("policy" in str(error), f"and told so: {error}")
    check("block" in client.ctl("explain", "vol", ok=False).stdout, "rnbdctl explains it")
    check(waits() and not small.aio_command_completed(held), "what is asked waits")

    restart(BLOCK)
    while not small.aio_command_completed(held):
        small.poll(-1)
    check(bytes(small.pread(BLOCK, 3 * BLOCK)) == b"h" * BLOCK, "what was held is done")

    restart(4096)
    wait_until("it says why it waits again", waits)
    small.shutdown()
    wait_until("who was told has gone: it is open", lambda: device()["state"] == "open")
    large = connected(lab, "vol")
    check(large.get_block_size(nbd.SIZE_MINIMUM) == 4096, "who comes now is told of large blocks")
    check(bytes(large.pread(4096, 0))[3 * BLOCK:4 * BLOCK] == b"h" * BLOCK, "and reads what was written")
