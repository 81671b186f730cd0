"""With all that a session may have under way waiting: another volume of it is answered, what comes after fail-fast-time fails at once, and all of a session that was replaced hears why."""

import os
import subprocess

from harness import BUILD, Lab, check, export, free_port, wait_until

PROGRAM = os.path.join(BUILD, "tests/integration/librnbd/librnbd_short_of_permits")
SIZE = "16MiB"
QUEUE_DEPTH = 64


class Program:
    def __init__(self, lab, *words):
        self.process = subprocess.Popen([PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        lab.cleanups.append(self.process.kill)

    def says(self, line):
        said = self.process.stdout.readline()
        check(said == line + "\n", f"{line}: {said!r}")

    def go_on(self):
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def ends(self):
        self.says("done")
        check(self.process.wait(timeout=300) == 0, "it ends")


with Lab() as lab:
    gone, there = export("gone", lab.path("gone"), SIZE), export("there", lab.path("there"), SIZE)
    gate = lab.path("gate")
    slow = {"name": "slow", "allow": [{"session": "host-a", "access": "rw"}],
            "storage": {"kind": "delay", "of": {"kind": "memory", "size": SIZE}, "gate": gate, "gate_count": 1000}}
    server = lab.server([gone, there, slow], queue_depth=QUEUE_DEPTH)
    address = f"127.0.0.1:{server.port}"

    for taken_away in (["exports", "evict", "gone", "host-a", "--for", "1h"], ["exports", "remove", "gone", "--force"]):
        program = Program(lab, "starve", address)
        program.says("open")
        server.ctl(*taken_away)
        wait_until("it is gone", lambda: all(one["name"] != "gone" or not one["opens"]
                                             for one in server.status()["exports"]))
        program.go_on()
        program.says("answered")
        if "remove" in taken_away:
            server.ctl("exports", "add", "gone", gone["path"], "--allow", "host-a=rw")
        else:
            server.ctl("exports", "evict", "gone", "host-a", "--for", "0")
        program.go_on()
        program.ends()

    def under_way():
        return sum(one["in_flight"] for one in server.status()["sessions"])

    open(gate, "w").close()
    program = Program(lab, "depth", address)
    permits = QUEUE_DEPTH - 1
    for line, wanted in (("part", (permits - 10) // 2), ("more", permits // 2), ("all", permits)):
        program.says(line)
        wait_until(f"{wanted} are under way", lambda: under_way() == wanted)
        if line == "all":
            os.unlink(gate)
        program.go_on()
    program.ends()

    program = Program(lab, "fail-fast", address)
    program.says("open")
    server.kill()
    program.go_on()
    program.says("refused")
    server.start()
    program.go_on()
    program.ends()

    other = free_port()
    server.stop()
    server.config_with(lambda config: config["listen"].append({"tcp": f"127.0.0.1:{other}"}))
    server.start()
    program = Program(lab, "taken", address, f"127.0.0.1:{other}")
    program.says("open")
    server.ctl("exports", "evict", "gone", "host-a", "--for", "1h")
    program.go_on()
    program.ends()
