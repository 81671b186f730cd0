"""An NBD server that takes its time and then has not what is exported is asked ever more slowly, and the log says so once.
So is one that ends each connection as soon as it is made."""

import socket
import subprocess
import threading
import time

from harness import Lab, built_with, check, need, skip, wait_until
from nbd_handshake import shake_hands

need("nbdkit")
if built_with("LIBNBD_FOUND") != "1":
    skip("the server was built without libnbd")

with Lab() as lab:
    place, asked = lab.path("nbdkit.sock"), lab.path("asked")
    # Slower than what the daemon waits for in one turn; read-only.
    nbdkit = subprocess.Popen(["nbdkit", "-f", "-U", place, "eval", f"open=echo >>{asked}; sleep 0.1",
                               "get_size=echo 1M", "can_write=exit 3", "pread=head -c $3 /dev/zero"])
    lab.cleanups.append(nbdkit.kill)
    server = lab.server([{"name": "vol", "storage": {"kind": "nbd", "uri": f"nbd+unix:///?socket={place}"},
                          "allow": [{"session": "host-a", "access": "rw"}]}])

    def attempts():
        try:
            with open(asked) as text:
                return len(text.readlines())
        except FileNotFoundError:
            return 0

    def reason():
        return server.status()["exports"][0]["reason"]

    wait_until("it has been asked some times", lambda: attempts() >= 6)
    said = reason()
    check("read-only" in said, said)
    begun = time.monotonic()
    before = attempts()
    # At most one a second by now, or hardly more: a slow machine only lengthens that.
    wait_until("it has been asked again", lambda: attempts() >= before + 3)
    check(time.monotonic() - begun >= 1.2, f"asked {attempts() - before} times in {time.monotonic() - begun:.2f} s")
    check(reason() == said, f"{reason()} instead of {said}")
    check(server.log().count("vol: waiting: ") <= 2, server.log())


def end_each_connection(listener, ended):
    """After the handshake, as with an export of a mebibyte."""
    while True:
        connection = listener.accept()[0]
        shake_hands(connection, 1 << 20)
        connection.close()
        ended.append(time.monotonic())


with Lab() as lab, socket.create_server(("127.0.0.1", 0)) as listener:
    ended = []
    threading.Thread(target=end_each_connection, args=(listener, ended), daemon=True).start()
    server = lab.server([{"name": "vol", "allow": [{"session": "host-a", "access": "rw"}],
                          "storage": {"kind": "nbd", "uri": f"nbd://127.0.0.1:{listener.getsockname()[1]}/"}}])
    # Each delay is twice the former one, up to a second: a slow machine only lengthens them.
    wait_until("it has ended ten connections", lambda: len(ended) >= 10)
    check(ended[9] - ended[0] >= 1.5, f"ten connections within {ended[9] - ended[0]:.2f} s")
