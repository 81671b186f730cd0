"""Metrics of both daemons are good OpenMetrics, and say what happened.

Read by a strict parser of our own, and by Prometheus' own one if python3-prometheus-client is there.
"""
import http.client
import importlib.util

import openmetrics
from harness import *
from nbd_clients import *

BLOCK = 65536
BLOCKS = 64


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def connection(where):
    if where.startswith("unix:"):
        return UnixConnection(where.removeprefix("unix:"))
    return http.client.HTTPConnection(where)


def text_of(where):
    asked = connection(where)
    asked.request("GET", "/metrics")
    answer = asked.getresponse()
    check(answer.status == 200, f"{where}: {answer.status}")
    check(answer.headers["Content-Type"] ==
          "application/openmetrics-text; version=1.0.0; charset=utf-8", "the type is OpenMetrics'")
    return answer.read().decode()


def scrape(where):
    text = text_of(where)
    families = openmetrics.parse(text)
    if importlib.util.find_spec("prometheus_client"):
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
        theirs = {family.name: len(family.samples)
                  for family in text_string_to_metric_families(text)}
        ours = {family.name: len(family.samples) for family in families.values()}
        check(theirs == ours, "Prometheus' parser reads the same families and samples")
    return families


def is_refused(where, *request, status):
    asked = connection(where)
    asked.request(*request)
    got = asked.getresponse().status
    check(got == status, f"{request}: {got}, expected {status}")


def io_is_counted(families, daemon, thing, name):
    """thing: export or device."""
    prefix = f"rnbd_{daemon}_{thing}"
    for operation in ("read", "write"):
        labels = {thing: name, "operation": operation}
        requests = families[f"{prefix}_requests"].value("_total", **labels)
        check(requests >= BLOCKS, f"{prefix} {operation}: {requests} requests")
        done = families[f"{prefix}_io_bytes"].value("_total", **labels)
        check(done == BLOCK * BLOCKS, f"{prefix} {operation}: {done} bytes")
        durations = families[f"{prefix}_duration_seconds"]
        check(durations.value("_count", **labels) == requests, "each request has a duration")
        check(durations.value("_sum", **labels) > 0, "durations are not all 0")
        check(families[f"{prefix}_errors"].value("_total", **labels) == 0, "no error")
    flushes = families[f"{prefix}_requests"].value("_total", **{thing: name, "operation": "flush"})
    check(flushes >= 1, f"{flushes} flushes")



with Lab() as lab:
    server_at = f"127.0.0.1:{free_port()}"
    client_at = f"unix:{lab.path('client.metrics')}"
    server = lab.server([export("vol1", lab.path("vol1.img"), "16MiB"),
                         export("missing", lab.path("no/such/folder/x.img"), "16MiB")],
                        metrics={"listen": server_at})
    client = Daemon(lab, "rnbd-client", "client", dict(
        sessions=[{"name": "host-a", "paths": [{"tcp": f"127.0.0.1:{server.port}"}]}],
        devices=[{"name": "disk", "volume": "vol1", "access": "rw", "session": "host-a",
                  "nbd": f"unix:{lab.socket('client', 'disk')}"}],
        metrics={"listen": client_at}))
    lab.daemons.append(client)
    client.start()
    wait_until("the device is open",
               lambda: all(d["state"] == "open" for d in client.status()["devices"]))

    h = nbd.NBD()
    h.connect_uri(f"nbd+unix:///disk?socket={lab.socket('client', 'disk')}")
    for i in range(BLOCKS):
        h.pwrite(bytes([i]) * BLOCK, i * BLOCK)
    h.flush()
    for i in range(BLOCKS):
        h.pread(BLOCK, i * BLOCK)

    at_server, at_client = scrape(server_at), scrape(client_at)
    io_is_counted(at_server, "server", "export", "vol1")
    io_is_counted(at_client, "client", "device", "disk")
    ready = at_server["rnbd_server_export_ready"]
    check(ready.value(export="vol1") == 1 and ready.value(export="missing") == 0,
          "vol1 is ready, the other waits")
    check(at_server["rnbd_server_export_opens"].value(export="vol1") == 1, "it is open once")
    check(at_server["rnbd_server_export_size_bytes"].value(export="vol1") == 16 << 20, "its size")
    check(at_server["rnbd_server_session_paths"].value(session="host-a") == 1, "one path")
    check(at_server["rnbd_server_path_connected"].value(session="host-a") == 1, "it is connected")
    check(at_server["rnbd_server_session_io_bytes"].value(
        "_total", session="host-a", operation="write") == BLOCK * BLOCKS, "what was written")
    check(at_client["rnbd_client_session_connected"].value(session="host-a") == 1, "connected")
    check(at_client["rnbd_client_device_connections"].value(device="disk") == 1, "one NBD client")
    path = at_client["rnbd_client_path_answers"]
    check(path.total("_total") >= 2 * BLOCKS, "answers are counted")
    check(at_client["rnbd_client_path_duration_seconds"].total("_count") ==
          path.total("_total"), "each answer has a duration")
    version = client.ctl("version").stdout
    for families, daemon in ((at_server, "rnbd-server"), (at_client, "rnbd-client")):
        check(families["rnbd_build"].value("_info", daemon=daemon) == 1, "what runs")
        running = [labels["version"] for _, labels, _ in families["rnbd_build"].samples]
        check(running[0] in version, f"{running} is in {version}")

    # Counters only grow, under load too; and nobody waits for the scrapes.
    load = subprocess.Popen(
        ["/usr/bin/python3", "-c",
         "import nbd, sys\nh = nbd.NBD()\nh.connect_uri(sys.argv[1])\n"
         "while True: h.pwrite(b'x' * 4096, 0)",
         f"nbd+unix:///disk?socket={lab.socket('client', 'disk')}"])
    try:
        before = [scrape(server_at), scrape(client_at)]
        wait_until("more was written", lambda: scrape(server_at)["rnbd_server_export_requests"].value(
            "_total", export="vol1", operation="write") > BLOCKS + 1000)
        for old, where in zip(before, (server_at, client_at)):
            new = scrape(where)
            for name, family in old.items():
                if family.type != "counter":
                    continue
                for _, labels, value in family.samples:
                    check(new[name].value("_total", **labels) >= value, f"{name} {labels} grows")
    finally:
        load.kill()
        load.wait()

    is_refused(server_at, "GET", "/", status=404)
    is_refused(client_at, "POST", "/metrics", status=405)
    is_refused(server_at, "GET", "/metrics", None, {"X-Long": "x" * 9000}, status=431)

    server.stop()
    wait_until("the client's metrics say that the session is down", lambda: scrape(client_at)[
        "rnbd_client_session_connected"].value(session="host-a") == 0)
    server.start()
    wait_until("and that it is back", lambda: scrape(client_at)[
        "rnbd_client_path_reconnects"].total("_total") == 1)
    check(client.stop() == 0 and not os.path.exists(client_at.removeprefix("unix:")),
          "the metrics' socket goes with the daemon")
    print(f"{len(at_server)} families of the server, {len(at_client)} of the client")
