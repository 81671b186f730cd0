"""SIGTERM ends a server whose NBD server is connected and silent: what that has not answered fails, and one line
says what may be lost. With a write under way, and with nothing but the last flush."""
import errno

from harness import *
from nbd_clients import *
from other_nbd_servers import *

with Lab() as lab:
    def lines(server, words):
        return [line for line in server.log().splitlines() if words in line]

    silent, answering = serve(lab, "silent"), serve(lab, "answering")
    server = lab.server([export_of(lab, "silent"), export_of(lab, "answering")])
    lab.client(server, {"silent": {}, "answering": {}})
    h, other = connected(lab, "silent"), connected(lab, "answering")
    h.pwrite(b"a" * 4096, 0)
    other.pwrite(b"b" * 4096, 0)
    silent.send_signal(signal.SIGSTOP)
    cookie = h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b"c" * 4096)), 4096)
    in_flight = lambda: sum(s["in_flight"] for s in server.status()["sessions"])
    wait_until("the write is at the server", lambda: in_flight() == 1)
    check(server.stop() == 0, "it ends with 0 all the same")
    said = lines(server, "is not waited for any longer")
    check(len(said) == 1 and "silent: nbd " in said[0] and "fail (1)" in said[0], said)
    check("no flush has covered may be lost (1)" in said[0], said)
    check(lines(server, "silent: last flush: ") and not lines(server, "answering: last flush: "),
          f"the other is flushed: {server.log()}")
    wait_until("the write has an answer", lambda: h.poll(1000) and h.aio_peek_command_completed() == cookie)
    check(error_of(h.aio_command_completed, cookie) == errno.EIO, "it is an error")
    silent.send_signal(signal.SIGCONT)

    # Silent when only the last flush is left.
    server.start()
    wait_until("both are ready", lambda: all(e["state"] == "ready" for e in server.status()["exports"]))
    wait_until("the device is open", lambda: error_of(h.pwrite, b"d" * 4096, 0) == 0)
    silent.send_signal(signal.SIGSTOP)
    check(server.stop() == 0, "it ends with 0 all the same")
    said = lines(server, "is not waited for any longer")
    check(len(said) == 2 and "no flush has covered may be lost (1)" in said[1], said)
