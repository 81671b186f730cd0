"""Whoever reads the log of a daemon may stand still: the daemon goes on, and says later how many lines
that has cost."""
from harness import *


def fill(end):
    """Until it takes no more, without a change of what the daemon has."""
    copy = socket.socket(fileno=os.dup(end.fileno()))
    try:
        while True:
            copy.send(b"x" * 999 + b"\n", socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass


def fill_pipe(end):
    copy = os.open(f"/proc/self/fd/{end}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(copy, b"x" * 4095 + b"\n")
    except BlockingIOError:
        os.close(copy)


def restart_with(daemon, stderr):
    daemon.process = subprocess.Popen(
        [os.path.join(BUILD, daemon.program, daemon.program), "--config", daemon.config_path],
        stderr=stderr, stdout=stderr, stdin=subprocess.DEVNULL)
    wait_until(f"{daemon.name} answers", daemon.answers)


def text_of(receive):
    text = b""
    while b"lost here" not in text:
        part = receive(65536)
        check(part, f"the log ended: {text[-2000:]}")
        text += part
    return text


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    client = lab.client(server, {"vol1": {}})
    client.stop()
    server.stop()
    # As a pipe to another program, and as systemd has it.
    reader, writer = os.pipe()
    restart_with(server, writer)
    mine, theirs = socket.socketpair()
    restart_with(client, theirs)
    wait_until("the device is open", lambda: client.status()["devices"][0]["state"] == "open")
    fill_pipe(writer)
    fill(theirs)
    # Each of these is told in the log, at both.
    for i in range(5):
        run("nbdinfo", "--size", lab.uri("vol1"), timeout=PATIENCE_S)
        client.ctl("map", "vol1", "from", "host-a", "--name", "again", ok=False)
        client.ctl("paths", "reconnect", "host-a", f"127.0.0.1:{server.port}")
    run("qemu-io", "-f", "raw", "-c", "write -P 7 0 4096", "-c", "flush", "-c", "read -P 7 0 4096",
        lab.uri("vol1"), timeout=PATIENCE_S)
    # Then they are read again: the next line comes, and before it how many did not.
    logs = {}
    for daemon, receive in ((server, lambda n: os.read(reader, n)), (client, mine.recv)):
        early = receive(65536)
        while b"x" not in early:
            early += receive(65536)
        client.ctl("paths", "reconnect", "host-a", f"127.0.0.1:{server.port}")
        logs[daemon] = text_of(receive)
    client.stop()
    server.stop()
    os.close(writer)
    theirs.close()
