"""SIGTERM under load: what was acknowledged is in the file, sockets are gone, exit status 0. What an
administrator asks for meanwhile is refused."""
from harness import *
from nbd_clients import *

BLOCK = 4096
with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "64MiB")])
    client = lab.client(server, {"vol1": {}}, wait_for_devices=False)
    # A client that comes before the server has opened the volume waits for it.
    h = connected(lab, "vol1")
    acknowledged = {}
    wanted = iter(range((64 << 20) // BLOCK))
    in_flight = 0

    def write():
        number = next(wanted)
        data = number.to_bytes(8, "little") * (BLOCK // 8)

        def completed(error):
            if error.value == 0:
                acknowledged[number] = data
            return 1
        h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(data)), number * BLOCK, completed)

    for _ in range(64):
        write()
    while len(acknowledged) < 500:
        before = len(acknowledged)
        h.poll(-1)
        for _ in range(len(acknowledged) - before):
            write()
    client.process.send_signal(signal.SIGTERM)
    try:
        while True:
            h.poll(1000)
            if h.aio_is_closed() or h.aio_is_dead():
                break
    except nbd.Error:
        pass
    check(client.process.wait(timeout=PATIENCE_S) == 0, "the client ends with 0")
    check(not os.path.exists(lab.socket("client", "vol1")), "the NBD socket is gone")
    check(not os.path.exists(client.control), "the client's control socket is gone")
    check(server.stop() == 0, "the server ends with 0")
    check(not os.path.exists(server.control), "the server's control socket is gone")
    with open(lab.path("vol1.img"), "rb") as image:
        for number, data in acknowledged.items():
            image.seek(number * BLOCK)
            check(image.read(BLOCK) == data, f"acknowledged block {number} is in the file")
    print(f"{len(acknowledged)} acknowledged blocks are in the file")

    # While the last flushes are under way nothing comes and nothing goes.
    gate = lab.path("gate")
    slow = {"kind": "delay", "gate": gate, "gate_operations": "all",
            "of": {"kind": "path", "path": lab.path("slow.img"), "size": "1MiB"}}
    server = lab.server([{"name": "slow", "storage": slow}], name="slow")
    wait_until("there is something to flush", lambda: server.status()["exports"][0]["state"] == "ready")
    open(gate, "w").close()
    server.process.send_signal(signal.SIGTERM)
    wait_until("it is stopping", lambda: server.status()["state"] == "stopping")
    for words in (["exports", "remove", "slow"], ["exports", "remove", "slow", "--force"],
                  ["exports", "add", "more", lab.path("more.img"), "--size", "1MiB"],
                  ["exports", "resize", "slow", "2MiB"], ["drain", "--no-wait"]):
        refused = server.ctl(*words, ok=False)
        check(refused.returncode == 1 and "stopping" in refused.stderr, (words, refused.stderr))
    check(server.running(), "it waits for its last flush")
    os.unlink(gate)
    check(server.process.wait(timeout=PATIENCE_S) == 0, "it ends with 0")
