"""rnbdctl --save, run by root, is led nowhere by a daemon of another user, or by somebody in its place.

The one in its place listens as that user, hands on what it is asked to a server of root's, and names another file of the
configuration.
"""
import threading

from harness import *

SOMEBODY = 12345

with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    theirs = lab.path("theirs")
    os.makedirs(theirs + "/x.d")
    named = theirs + "/x.yaml"
    open(named, "w").close()
    precious = lab.path("precious")
    open(precious, "w").close()
    os.symlink(precious, theirs + "/x.d/90-rnbdctl.yaml")

    asked = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(lab.path("forged.ctl"))
    os.seteuid(SOMEBODY)  # as whom it is seen to listen
    listener.listen()
    os.seteuid(0)

    def hand_on():
        while True:
            connection, _ = listener.accept()
            with connection, socket.socket(socket.AF_UNIX) as real:
                real.connect(server.control)
                request = connection.makefile("rb").readline()
                asked.append(json.loads(request)["command"])
                real.sendall(request)
                answer = json.loads(real.makefile("rb").readline())
                if asked[-1] == "config_check":
                    answer["result"]["file"] = named
                connection.sendall(json.dumps(answer).encode() + b"\n")

    threading.Thread(target=hand_on, daemon=True).start()

    def save(name):
        return run(os.path.join(BUILD, "rnbdctl", "rnbdctl"), "--socket", lab.path("forged.ctl"), "exports", "add", name,
                   lab.path(name), "--size", "1MiB", "--save", ok=False)

    def untouched():
        status = os.stat(precious)
        return os.path.getsize(precious) == 0 and (status.st_uid, status.st_mode & 0o777) == (0, 0o644)

    os.chmod(precious, 0o644)
    # The file is theirs; then what leads to it; then the link alone.
    for path, told in ((named, named), (theirs, theirs), (theirs + "/x.d", theirs + "/x.d")):
        os.chown(path, SOMEBODY, SOMEBODY)
        refused = save("vol2")
        check(refused.returncode == 1 and f"not written by root: {told} belongs to user {SOMEBODY}" in refused.stderr, refused)
        check(untouched(), "what the link leads to is as it was")
        server.ctl("exports", "remove", "vol2")
        os.chown(path, 0, 0)
    check("config_check" in asked, asked)
    # Where only root can write, it does.
    kept = save("vol2")
    check(kept.returncode == 0 and "vol2" in open(precious).read(), kept)
