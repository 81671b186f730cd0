"""For scripts in the guest: the integration tests' harness, without what is dear on an emulated processor.

To start a program takes a quarter of a second there, and python a second: who polls by rnbdctl takes that
from what is waited for. What is only looked at is asked over the control socket
(docs/reference/control-protocol.md); what is done, and what people see, goes through rnbdctl as ever.
"""
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/integration")
from harness import *  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
# A guest without KVM is slow.
SLOW_S = 300


def step(text):
    print(text, flush=True)


def ask(daemon, command, **arguments):
    """What rnbdctl --json prints as the result."""
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(PATIENCE_S)
        control.connect(daemon.control)
        control.sendall(json.dumps({"command": command, "arguments": arguments}).encode() + b"\n")
        with control.makefile() as lines:
            answer = json.loads(lines.readline())
    check(answer["ok"], f"{daemon.name}, {command}: {answer}")
    return answer["result"]


def answers(daemon):
    check(daemon.process.poll() is None, f"{daemon.name} ended: {daemon.log()[-2000:]}")
    try:
        return ask(daemon, "version")
    except OSError:
        return None


# Also for what the harness itself waits for.
Daemon.status = lambda daemon: ask(daemon, "status")
Daemon.answers = answers


def size_of(device):
    """As the kernel has it now."""
    with open(device, "rb") as opened:
        return opened.seek(0, os.SEEK_END)


def rdma_resources():
    """{device: {kind: how many}}, of all programs and of rdma_cm itself."""
    shown = json.loads(run("rdma", "-j", "resource", "show").stdout)
    return {device.pop("ifname"): {kind: count for kind, count in device.items() if kind != "ifindex"}
            for device in shown}


class Passes:
    """fio, which verifies, is run again and again until it is told to end."""

    def __init__(self, *command, folder=None):
        self.command, self.folder = command, folder
        self.stopping, self.done, self.failure = False, 0, None
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        while not self.stopping:
            result = run(*self.command, ok=False, cwd=self.folder, timeout=3600)
            if result.returncode != 0 or "err= 0" not in result.stdout:
                self.failure = (result.stdout + result.stderr)[-4000:]
                return
            self.done += 1

    def check(self):
        check(self.failure is None, f"fio: {self.failure}")

    def finish(self):
        self.stopping = True
        self.thread.join()
        self.check()
        check(self.done > 0, "fio was never done")
