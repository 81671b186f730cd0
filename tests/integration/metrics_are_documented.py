"""docs/reference/metrics.md has every metric of both daemons, and the dashboard names no other.

--write makes the page so.
"""
import re

import openmetrics
from harness import *

DOCS = os.path.join(os.path.dirname(__file__), "../../docs")
DOCUMENT = os.path.join(DOCS, "reference/metrics.md")
DASHBOARD = os.path.join(DOCS, "examples/grafana-dashboard.json")
HEAD = """# Metrics

What both daemons tell monitoring systems: at `GET /metrics` by HTTP, where `metrics: listen:` in their configurations says
([rnbd-server.yaml(5)](../man/rnbd-server.yaml.5), [rnbd-client.yaml(5)](../man/rnbd-client.yaml.5)); without that key nowhere. How to use them:
[monitoring](../how-to/monitor.md). The text is that of OpenMetrics 1.0. Names, labels and units stay as they are; others may be added.

A counter's sample has `_total` behind the name, an info's `_info`, a histogram's `_bucket`, `_count` and `_sum`. Buckets end at powers of
two of a microsecond, up to 67 s. Counters begin at 0 with the daemon, those of a session or a path with it. Durations have the grain of a turn
of the daemon's loop: what began and ended in one took 0. Names of peers are in printable ASCII; other bytes are written as `\\xNN`.

A connection is answered once and closed. Only GET is answered; other methods, HEAD too, get 405. A request has at most 8192 bytes and 64 fields and
comes within 10 s; the answer is taken within 30 s. 16 connections may be open at a time; one more takes the place of the oldest that has not asked yet,
or else of the oldest that has taken nothing of its answer for 2 s; if there is none, it is closed.

`result` of `rnbd_reactor_looks` is `found` or `fruitless`. `operation` is of a session `read`, `write` or `other` (of `io_bytes` `read` or `write`); of an
export `read`, `write`, `flush`, `discard` or `write_zeroes`; of a device `read`, `write`, `flush`, `trim`, `write_zeroes`, `cache` or `block_status`.

This page is made by `tests/integration/metrics_are_documented.py --write` from what the daemons serve.
"""
PARTS = [("Both daemons", ("rnbd_build", "rnbd_uptime", "rnbd_reactor")),
         ("rnbd-server", ("rnbd_server_",)), ("rnbd-client", ("rnbd_client_",))]


def families_of(where):
    with contextlib.closing(socket.create_connection(where)) as asked:
        asked.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: asked.recv(65536), b"")).decode()
    return openmetrics.parse(answer.split("\r\n\r\n", 1)[1])


def row(family):
    check(family.samples, f"{family.name} has no sample in this test, so that its labels are unknown")
    labels = [f"`{name}`" for name in family.samples[0][1] if name != "le"]
    return f"| `{family.name}` | {family.type} | {', '.join(labels) or '-'} | {family.help} |\n"


def document(families):
    text = HEAD
    for title, beginnings in PARTS:
        text += f"\n## {title}\n\n| Name | Type | Labels | Is |\n| --- | --- | --- | --- |\n"
        text += "".join(row(family) for name, family in families.items()
                        if name.startswith(beginnings))
    return text


def names_in_dashboard():
    """Of samples: those of histograms with their suffix."""
    with open(DASHBOARD) as source:
        dashboard = json.load(source)
    names = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            found = set(re.findall(r"\brnbd_\w+", target["expr"]))
            check(found, f"panel {panel['title']}: {target['expr']} names no metric")
            names |= found
    for variable in dashboard["templating"]["list"]:
        names |= set(re.findall(r"\brnbd_\w+", json.dumps(variable)))
    return names


with Lab() as lab:
    ports = [free_port(), free_port()]
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")],
                        metrics={"listen": f"127.0.0.1:{ports[0]}"})
    client = Daemon(lab, "rnbd-client", "client", dict(
        sessions=[{"name": "host-a", "paths": [{"tcp": f"127.0.0.1:{server.port}"}]}],
        devices=[{"name": "disk", "volume": "vol1", "access": "rw", "session": "host-a",
                  "nbd": f"unix:{lab.socket('client', 'disk')}"}],
        metrics={"listen": f"127.0.0.1:{ports[1]}"}))
    lab.daemons.append(client)
    client.start()
    wait_until("the device is open",
               lambda: all(d["state"] == "open" for d in client.status()["devices"]))
    families = {}
    for port in ports:
        families |= families_of(("127.0.0.1", port))
    unplaced = [name for name in families
                if not name.startswith(tuple(b for _, all in PARTS for b in all))]
    check(not unplaced, f"in no part of the page: {unplaced}")
    wanted = document(families)
    if "--write" in sys.argv:
        with open(DOCUMENT, "w") as out:
            out.write(wanted)
    with open(DOCUMENT) as text:
        found = text.read()
    if found != wanted:
        import difflib
        print("".join(difflib.unified_diff(found.splitlines(True), wanted.splitlines(True))))
    check(found == wanted, "metrics.md differs: run this test with --write")
    samples = {family.name + suffix for family in families.values()
               for suffix, _, _ in family.samples}
    shown = names_in_dashboard()
    check(shown <= samples, f"the dashboard names {sorted(shown - samples)}, which nobody serves")
    with open(os.path.join(DOCS, "how-to/monitor.md")) as text:
        told = set(re.findall(r"\brnbd_\w+", text.read()))
    unknown = told - samples - set(families)
    check(told and not unknown, f"monitor.md names {sorted(unknown)}, which nobody serves")
    print(f"{len(families)} families; {len(shown)} of their samples are in the dashboard")
