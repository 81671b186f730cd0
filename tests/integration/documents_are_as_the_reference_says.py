"""What the daemons tell rnbdctl has the members that control-protocol.md lists, and no others."""
import re

from fio import *
from harness import *

need("fio")
REFERENCE = os.path.join(os.path.dirname(__file__), "../../docs/reference/control-protocol.md")


def members_of(title):
    """Of a section: {"": names, "sessions[]": names, ...}, by the tables' first column."""
    with open(REFERENCE) as text:
        section = text.read().split(f"### {title}\n", 1)[1].split("\n### ", 1)[0]
    found, parent = {"": set()}, ""
    for line in section.splitlines():
        row = re.match(r"\| (- )?((?:`[\w\[\]]+`(?:, )?)+) \|", line)
        if not row:
            continue
        names = re.findall(r"`([\w\[\]]+)`", row[2])
        if not row[1]:
            parent = names[0] if len(names) == 1 else ""
            found.setdefault(parent, set())
        found[parent if row[1] else ""] |= {name.removesuffix("[]") for name in names}
    return found


def compare(where, document, names):
    check(set(document) == names, (where, "only there:", set(document) - names,
                                   "only in the reference:", names - set(document)))


def compare_all(where, title, document):
    listed = members_of(title)
    compare(where, document, listed[""])
    for parent, names in listed.items():
        if not names or not parent:
            continue
        items = document[parent.removesuffix("[]")]
        items = items if isinstance(items, list) else [items]
        check(items, f"{where}: no {parent} to look at")
        for item in items:
            compare(f"{where}, {parent}", item, names)


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "64MiB")])
    client = lab.client(server, {"vol1": {}})
    session_members = members_of("Session of rnbd-client")[""]
    path_members = members_of("Path of rnbd-client")[""]
    device_members = members_of("Device of rnbd-client")[""]

    def ask(daemon, *words):
        answer = json.loads(daemon.ctl("--json", *words).stdout)
        check(answer["schema"] == "rnbd-control" and answer["version"] == 1 and answer["ok"] is True,
              answer)
        return answer["result"]

    def compare_client(where, document):
        for session in document.get("sessions", [document.get("session")]):
            compare(f"{where}, session", session, session_members)
            check(session["paths"], "no path to look at")
            for path in session["paths"]:
                compare(f"{where}, path", path, path_members)
        for device in document.get("devices", [document.get("device")]):
            if device is not None:
                compare(f"{where}, device", device, device_members)

    compare_all("server status", "`status` of rnbd-server", ask(server, "status"))
    status = ask(client, "status")
    compare_all("client status", "`status` of rnbd-client", status)
    compare_client("client status", status)
    compare_client("paths", ask(client, "paths", "host-a"))
    path = f"127.0.0.1:{server.port}"
    compare_all("path operation", "Result of a path's operation",
                ask(client, "paths", "reconnect", "host-a", path))
    check(ask(client, "policy", "host-a") == {"session": "host-a", "policy": "min-inflight"},
          "policy")
    compare_all("hold", "`hold`", ask(client, "hold"))
    for daemon in (server, client):
        for word in ("check", "diff", "apply"):
            document = ask(daemon, "config", word)
            listed = members_of("`config`")
            compare(f"config {word}", document, listed[""])
            for one in document["objects"]:
                compare(f"config {word}, object", one, listed["objects[]"])
            check(document["state"] in ("good", "same", "applied"), document)
            check(len(document["objects"]) == (0 if word == "check" else 2), document)
    # A server that stands still: requests stay where they are.
    load = VerifiedLoad(lab, client, "vol1")
    try:
        wait_until("I/O runs", lambda: client.status()["devices"][0]["writes"] > 10)
        server.process.send_signal(signal.SIGSTOP)
        document = wait_until("a request waits", lambda: (
            lambda it: it if it["requests"] else None)(ask(client, "explain", "vol1")))
    finally:
        server.process.send_signal(signal.SIGCONT)
    compare_all("explain", "`explain`", document)
    compare_client("explain", document)
    compare("explain, next", document["requests"][0]["next"][0], {"event", "path", "in_s"})
    load.finish()
