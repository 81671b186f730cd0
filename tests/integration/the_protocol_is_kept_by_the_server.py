"""The conformance tool finds no statement of the checklist that our server breaks, over TCP."""

import os
import sys

from harness import BUILD, Daemon, Lab, check, export, free_port, run

SESSIONS = ("conformance", "conformance-2")
# always_invalidate, queue depth, longest request: NEW_RKEY and plain keys; the checklist's depths and
# chunks, as far as a server of ours can have them.
ROUNDS = [(True, 64, "128KiB"), (False, 64, "124KiB"), (True, 1, "1020KiB"), (False, 2, "124KiB"),
          (True, 3, "4KiB"), (True, 512, "128KiB"), (False, 100, "1020KiB"), (True, 1025, "4KiB")]
INTERVAL = int(os.environ.get("RNBD_HEARTBEAT_MS", 500))
# A machine that is busy with something else keeps that, too.
TIMEOUT = 16 * INTERVAL
# Once each is enough.
SLOW = ("heartbeats", "drains", "one-at-a-time")


def exports(lab):
    allow = [{"session": name, "access": "migration"} for name in SESSIONS]
    slow = {"kind": "delay", "of": {"kind": "memory", "size": "8MiB"}, "write": "4s"}
    return [dict(export("vol", lab.path("vol.img"), size="8MiB"), allow=allow),
            {"name": "slow", "storage": slow, "allow": allow}]


def restart_script(lab, server):
    """Ends the server and starts another one like it, whose process is in a file."""
    script, process = lab.path(f"{server.name}.restart"), lab.path(f"{server.name}.pid")
    program = os.path.join(BUILD, "rnbd-server", "rnbd-server")
    ctl = f"{os.path.join(BUILD, 'rnbdctl', 'rnbdctl')} --socket {server.control}"
    with open(script, "w") as out:
        out.write(f"""#!/bin/sh
kill {server.process.pid}
while {ctl} status >/dev/null 2>&1; do sleep 0.1; done
{program} --config {server.config_path} >>{server.log_path} 2>&1 </dev/null &
echo $! >{process}
until {ctl} status >/dev/null 2>&1; do sleep 0.1; done
""")
    os.chmod(script, 0o700)
    return script, process


def stop(server, process):
    if os.path.exists(process):
        with open(process) as text:
            os.kill(int(text.read()), 15)
    if server.running():
        server.stop()


def one_round(lab, index, invalidate, depth, longest):
    port = free_port()
    server = Daemon(lab, "rnbd-server", f"server{index}", {
        "listen": [{"tcp": f"127.0.0.1:{port}"}, {"tcp": f"[::1]:{port}"}],
        "exports": exports(lab), "always_invalidate": invalidate, "queue_depth": depth,
        "max_io_size": longest,
        "heartbeat": {"interval": f"{INTERVAL}ms", "timeout": f"{TIMEOUT}ms"}})
    lab.daemons.append(server)
    server.start()
    script, process = restart_script(lab, server)
    result = run(os.path.join(BUILD, "tests/conformance/conformance"), "server",
                 f"127.0.0.1:{port}", "vol", "--slow-volume", "slow", "--restart", script,
                 "--second-address", f"127.0.0.9@127.0.0.1:{port}", "--other-family", f"[::1]:{port}",
                 "--heartbeat-interval", INTERVAL, "--heartbeat-timeout", TIMEOUT,
                 *(word for name in SLOW for word in ("--skip", name) if index > 1), ok=False)
    stop(server, process)
    print(f"--- always_invalidate {invalidate}, depth {depth}, max_io_size {longest}")
    whole = result.returncode or os.environ.get("RNBD_REPORT")
    print(result.stdout if whole else result.stdout.splitlines()[-1])
    check(result.returncode == 0, f"exit status {result.returncode}\n{result.stderr}")


wrong = run(os.path.join(BUILD, "tests/conformance/conformance"), "server", ok=False)
check(wrong.returncode == 2 and "address is required" in wrong.stderr, f"wrong usage: {wrong}")
with Lab() as lab:
    for index, how in enumerate(ROUNDS):
        if len(sys.argv) > 1 and sys.argv[1] != str(index):
            continue
        one_round(lab, index, *how)
