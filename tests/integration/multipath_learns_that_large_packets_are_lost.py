"""One of two links takes no packet above 1500 bytes, though its ends think so: the path is dialled for small ones.

It answers when it is dialled, and heartbeats: nothing but lost data tells of it. With a deep queue that is the list of
chunks, without which the path does not connect; with a short one requests are the first that is lost. If it is
answers alone, the server knows of it: the client has nothing to send again.
"""
from multipath_lab import *


def lose_large_packets(net, link, towards):
    for space in net.spaces():
        # Without gso_max_segs what is dropped would be many small packets that go as one.
        run("ip", "-n", space, "link", "set", f"link{link}", "mtu", "9000", "gso_max_segs", "1")
    for space in towards:
        run(*net.inside(space), "nft", f"add table inet large; add chain inet large input "
            f"{{ type filter hook input priority 0; }}; add rule inet large input iifname link{link} "
            "meta length > 1500 drop")


# With patience it is the server that knows first, each time.
PATIENT = {"request_deadline": "20s"}

for queue, answers_alone, times in ((512, False, STEADY), (32, False, STEADY), (32, True, STEADY), (32, True, PATIENT)):
    with MultipathLab() as lab:
        net = lab.network()
        towards = [net.client] if answers_alone else net.spaces()
        lose_large_packets(net, 0, towards)
        lab.start_server([disk(lab, "numbered")], queue_depth=queue)
        lab.start_client(["numbered"], **times)
        judge = lab.judge("numbered", blocks=2048)
        hint = "large packets seem to be lost on the way"
        wait_until("the client has drawn its conclusion", lambda: hint in lab.the_client.log())
        wait_until("the path is back", lambda: lab.path_of(0)["state"] == "connected")
        check("small packets only" in lab.path_of(0)["reason"], lab.path_of(0))
        before = lab.path_of(0)
        judge.wait_for_progress(5000)
        after = lab.path_of(0)
        check(after["reconnects"] == before["reconnects"], f"lost again: {after}")
        check(after["state"] == "connected", after)
        # The operator has mended the network, and says so.
        for space in towards:
            run(*lab.net.inside(space), "nft", "delete table inet large")
        lab.operate_path("reconnect", 0)
        lab.wait_for_paths()
        check("small packets" not in (lab.path_of(0)["reason"] or ""), lab.path_of(0))
        judge.wait_for_progress(2000)
        judge.finish()
        lab.check_no_errors()
        by_server = "takes no answer on connection" in lab.the_server.log()
        by_client = "answers nothing, though the server answers on another" in lab.the_client.log()
        check(by_server or not answers_alone or (by_client and times is STEADY), lab.the_server.log())
        print(f"queue of {queue}, {'answers alone' if answers_alone else 'both ways'}: no error, and the path carries data in small packets")
