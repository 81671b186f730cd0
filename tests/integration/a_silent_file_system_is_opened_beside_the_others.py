"""A file whose file system does not answer is opened beside the others, not before them: when the server starts,
when an export comes, and when its file comes back. What is given up meanwhile is opened by nobody."""
import fcntl

from harness import *
from nbd_clients import *
from silent_files import *

BLOCK = 4096

with Lab() as lab:
    files, processes = zip(*(mounted(lab, name) for name in ("far", "late", "given_up")))
    exports = lambda: {e["name"]: e for e in server.status()["exports"]}

    def unanswered(name):
        one = exports()[name]
        return one["state"] == "waiting" and ("being opened" in one["reason"] or "not answered" in one["reason"])


    def lives(number):
        handle.pwrite(number.to_bytes(2, "little") * 2048, 0)
        handle.flush()
        check(bytes(handle.pread(BLOCK, 0)) == number.to_bytes(2, "little") * 2048, "the other one is served")

    with stopped(*processes):
        server = lab.server([export("far", files[0]), export("near", lab.path("near"), SIZE)])
        check(unanswered("far"), "it waits, and says why")
        client = lab.client(server, {"far": {}, "near": {}}, wait_for_devices=False)
        handle = connected(lab, "near")
        lives(1)
        server.ctl("exports", "add", "late", files[1], "--allow", "host-a=rw")
        check(unanswered("late"), "what comes waits, too")
        # One that answers is there all the same.
        server.ctl("exports", "add", "local", lab.path("local"), "--size", "1MiB", "--allow", "host-a=rw")
        wait_until("it is there", lambda: exports()["local"]["state"] == "ready")
        server.ctl("exports", "add", "given-up", files[2], "--allow", "host-a=rw")
        wait_until("it is told from a slow disk", lambda: "not answered" in exports()["given-up"]["reason"])
        lives(2)
        server.ctl("exports", "remove", "given-up")
        check("given-up" not in exports(), "what waits can go")
        lives(3)
        # By a configuration that is read anew.
        server.config_with(lambda config: config["exports"].append(export("given-up", files[2])))
        server.ctl("config", "apply")
        lives(4)
        server.config_with(lambda config: config["exports"].pop())
        server.ctl("config", "apply")
        check("given-up" not in exports(), "it can go again")
        # The end does not wait, either; but a sanitizer's search for leaks would, for each thread to stand still.
        options = f"ASAN_OPTIONS={os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"
        other = lab.server([export("far", files[2])], name="other", prefix=["env", options])
        check(other.stop() == 0, "a server that waits for nothing else ends")

    wait_until("they are ready", lambda: all(e["state"] == "ready" for e in exports().values()))
    wait_until("the client has it", lambda: all(d["state"] == "open" for d in client.status()["devices"]))
    far = connected(lab, "far")
    far.pwrite(b"f" * BLOCK, 0)
    far.flush()
    check(bytes(far.pread(BLOCK, 0)) == b"f" * BLOCK, "it is served")
    # It was locked for a moment, maybe, by who has let go of it.
    with open(files[2], "r+b") as given_up:
        def locked():
            try:
                fcntl.flock(given_up, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                return False
        wait_until("nobody has what was given up", locked)

    # A size is not changed, nor measured, where that would wait.
    with stopped(processes[0]):
        wait_until("the server has noticed", lambda: "does not answer" in exports()["far"]["reason"])
        refused = server.ctl("exports", "resize", "far", ok=False)
        check(refused.returncode != 0 and "does not answer" in refused.stderr, "it says why not")
        lives(5)
    wait_until("all is well", lambda: exports()["far"]["reason"] == "")
    for one in (far, handle):
        one.shutdown()
    check(client.stop() == 0, "the client ends in order")
    check(server.stop() == 0, "the server ends in order")
