"""A server that is stopped while a configuration is applied answers what it has not done, and opens no listener any more."""
from configurations import *
from harness import *

with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    other = socket.socket()
    other.bind(("127.0.0.1", 0))
    other.listen()
    taken = "127.0.0.1:%d" % other.getsockname()[1]
    server.config_with(lambda config: (
        config["listen"].append({"tcp": taken}),
        config["exports"].append(export("vol2", lab.path("vol2.img"), "1MiB"))))

    # The listener's address is waited for; the export is to come after it.
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(server.control)
        control.sendall(json.dumps({"command": "config_apply"}).encode() + b"\n")
        with socket.socket(socket.AF_UNIX) as second:
            second.connect(server.control)
            second.sendall(json.dumps({"command": "config_apply"}).encode() + b"\n")
            check("under way" in second.makefile().readline(), "it has begun")
        since = len(server.log())
        server.process.send_signal(signal.SIGTERM)
        answer = json.loads(control.makefile().readline())
    other.close()
    check(server.process.wait(timeout=PATIENCE_S) == 0, "it ends as ever")
    check(answer["result"]["state"] == "incomplete", answer)
    failures = {one["name"]: one["failure"] for one in answer["result"]["objects"] if one["failure"]}
    check(failures == {f"tcp {taken}": "rnbd-server is stopping", "vol2": "rnbd-server is stopping"}, failures)
    log = server.log()[since:]
    check("listening" not in log and "rnbd.volume: vol2" not in log, log)
    server.start()
