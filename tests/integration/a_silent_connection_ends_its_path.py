"""One I/O connection of a path falls silent while the others go on: the path is made anew, no error.

Heartbeats run on another connection, and TCP by itself would try for a quarter of an hour. Where a request waits it is looked at when
that is late and the path has been probed, and by the server when an answer is not acknowledged; TCP's own limit, 10 s, ends an idle one.
"""
import re

from multipath_lab import *

need("ss")


def busiest_port(lab):
    """The client's port of the connection that has sent most: not the one of the heartbeats."""
    text = run(*lab.net.inside(lab.net.client), "ss", "-tinH", "state", "established", "dport", "=",
               f":{lab.port}").stdout
    found = re.findall(r":(\d+) +\S+:\d+ *\n?.*?\bbytes_sent:(\d+)", text)
    # Of heartbeats, four of I/O, of messages.
    check(len(found) == 6, f"{len(found)} connections instead of 6: {text}")
    return max(found, key=lambda one: int(one[1]))[0]


def drop(lab, port, what_comes, what_goes):
    """At the server; undone by what it returns."""
    rules = [f"add rule inet silent in tcp sport {port} drop"] if what_comes else []
    rules += [f"add rule inet silent out tcp dport {port} drop"] if what_goes else []
    run(*lab.net.inside(lab.net.server), "nft", "; ".join(
        ["add table inet silent", "add chain inet silent in { type filter hook input priority 0; }",
         "add chain inet silent out { type filter hook output priority 0; }"] + rules))
    return lambda: run(*lab.net.inside(lab.net.server), "nft", "delete table inet silent")


with MultipathLab() as lab:
    lab.network(links=1)
    lab.start_server([disk(lab, "numbered")])
    lab.start_client(["numbered"], connections=4)
    reconnects = lambda: lab.path_of(0)["reconnects"]
    for load, what_comes, what_goes in (
            ("busy", True, True), ("busy", True, False), ("busy", False, True), ("idle", True, True)):
        before = reconnects()
        judge = lab.judge("numbered", blocks=2048)
        judge.wait_for_progress()
        port = busiest_port(lab)
        if load == "idle":
            judge.finish()
        heal = drop(lab, port, what_comes, what_goes)
        wait_until(f"the path of a silent {load} connection is made anew",
                   lambda: reconnects() > before and lab.path_of(0)["state"] == "connected")
        if load == "busy":
            by_client = f"one of its connections, from 10.99.0.2:{port}, is silent" in lab.the_client.log()
            by_server = "takes no answer on connection" in lab.the_server.log()
            check(by_client or by_server, "by a late request, or by an answer that is not acknowledged")
            judge.wait_for_progress()
            judge.finish()
        heal()
        # So that the next loss does not look like that of a shaky path, nor like lost large packets.
        lab.operate_path("reconnect", 0)
        lab.wait_for_paths()
        lab.check_no_errors()
    check("large packets" not in lab.the_client.log(), "that is no wrong MTU")
    print("busy, either way, and idle: made anew, no error")
