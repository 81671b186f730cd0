"""Who removes a daemon's sockets, or the folder that they are in, takes no device away: SIGHUP has them made
anew, while those that are connected go on."""
from harness import *
from nbd_clients import *

with Lab() as lab:
    folder = lab.path("run")
    metrics = lab.path("metrics.sock")
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")], name="server",
                        metrics={"listen": f"unix:{metrics}"})
    client = lab.client(server, {"vol1": {}})
    h = connected(lab, "vol1")
    h.pwrite(b"a" * 4096, 0)

    def answered(daemon):
        return lambda: daemon.ctl("list", ok=False).returncode == 0

    for rounds in range(2):
        for path in (server.control, metrics, client.control, lab.socket("client", "vol1")):
            os.unlink(path)
        check(server.ctl("list", ok=False).returncode == 3, "nobody finds it")
        for daemon in (server, client):
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(f"{daemon.name} is found again", answered(daemon))
        wait_until("NBD clients find it", lambda: run(
            "nbdinfo", "--size", lab.uri("vol1"), ok=False).returncode == 0)
        with socket.socket(socket.AF_UNIX) as monitor:
            wait_until("a monitoring system finds it", lambda: monitor.connect_ex(metrics) == 0)
            monitor.sendall(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
            check(monitor.recv(15) == b"HTTP/1.1 200 OK", "and is answered")
        check(h.pread(4096, 0) == b"a" * 4096, "who is connected goes on")
    for daemon in (server, client):
        check(daemon.log().count("its file was gone") == 4, daemon.log())
        check("trying again" not in daemon.log(), daemon.log())

    # Nothing is done to files that are there, nor to what another process has put in their place.
    client.process.send_signal(signal.SIGHUP)
    wait_until("it is read", lambda: client.log().count("reading the configuration again") == 3)
    os.unlink(lab.socket("client", "vol1"))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(lab.socket("client", "vol1"))
        other.listen()
        client.process.send_signal(signal.SIGHUP)
        wait_until("it is told", lambda: "another process serves" in client.log())
    check(h.pread(4096, 0) == b"a" * 4096, "who is connected goes on")
    client.process.send_signal(signal.SIGHUP)
    wait_until("NBD clients find it", lambda: run(
        "nbdinfo", "--size", lab.uri("vol1"), ok=False).returncode == 0)

    # The whole folder of a control socket.
    os.mkdir(folder)
    server.stop()
    server.control = os.path.join(folder, "server.ctl")
    server.config_with(lambda config: config.update(control=server.control))
    server.start()
    shutil.rmtree(folder)
    server.process.send_signal(signal.SIGHUP)
    wait_until("it is found again", answered(server))
    check(client.stop() == 0 and server.stop() == 0, "they end as ever")
    check(not os.path.exists(lab.socket("client", "vol1")) and not os.path.exists(client.control),
          "and leave no socket")
