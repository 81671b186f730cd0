"""The JSON schemas of the configuration and the parsers say the same.

Every key that a parser asks for is in its schema, and no other; the examples are valid by both; and
a row of good and bad pieces is judged alike. What only the parser can know (names that must be
unique, addresses that must exist) is not tried. The schemas are of the whole: what is split over the
folder of a configuration is judged as if it were one file.
"""

import copy
import json
import pathlib
import re
import subprocess
import tempfile

from tidy import Report, program, read, skip

try:
    import yaml
except ImportError:
    skip("python3-yaml is not installed")

report = Report()
checked = 0
ASKS = re.compile(r'\b(?:required|optional)(?:_list|_map)?\(\s*"(\w+)"|\b(?:find|require)\(\s*"(\w+)"')


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, {"object": dict, "array": list, "string": str, "boolean": bool,
                              "null": type(None)}[name])


def valid(schema, value, root):
    """As much of JSON schema as ours use; an unknown word is an error of this test."""
    for word, rule in schema.items():
        if word in ("description", "title", "$schema", "$defs"):
            continue
        if word == "$ref":
            good = valid(root["$defs"][rule.rsplit("/", 1)[1]], value, root)
        elif word == "type":
            good = any(is_type(value, one) for one in (rule if isinstance(rule, list) else [rule]))
        elif word == "enum":
            good = any(value == one and type(value) is type(one) for one in rule)
        elif word == "const":
            good = value == rule
        elif word in ("minimum", "maximum"):
            good = not is_type(value, "integer") or (value >= rule if word == "minimum" else value <= rule)
        elif word in ("minLength", "maxLength"):
            good = not isinstance(value, str) or (
                len(value) >= rule if word == "minLength" else len(value) <= rule)
        elif word in ("minItems", "maxItems"):
            good = not isinstance(value, list) or (
                len(value) >= rule if word == "minItems" else len(value) <= rule)
        elif word == "pattern":
            good = not isinstance(value, str) or re.search(rule, value) is not None
        elif word == "required":
            good = not isinstance(value, dict) or all(key in value for key in rule)
        elif word == "properties":
            good = not isinstance(value, dict) or all(
                valid(rule[key], one, root) for key, one in value.items() if key in rule)
        elif word == "additionalProperties":
            good = not isinstance(value, dict) or all(key in schema["properties"] for key in value)
        elif word == "items":
            good = not isinstance(value, list) or all(valid(rule, one, root) for one in value)
        elif word == "anyOf":
            good = any(valid(one, value, root) for one in rule)
        elif word == "oneOf":
            good = sum(valid(one, value, root) for one in rule) == 1
        elif word == "not":
            good = not valid(rule, value, root)
        else:
            raise AssertionError(f"this test does not know {word}")
        if not good:
            return False
    return True


def keys_of(schema):
    found = set()
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            found |= set(schema["properties"])
        for value in schema.values():
            found |= keys_of(value)
    elif isinstance(schema, list):
        for value in schema:
            found |= keys_of(value)
    return found


def accepted(daemon, document):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(document, file)
        file.flush()
        return subprocess.run([program(daemon), "--config", file.name, "--check-config"],
                              capture_output=True).returncode == 0


def accepted_in_two_files(daemon, document):
    """Its lists in a file of their own, in the folder beside what is left."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "c.d").mkdir()
        lists = {key: value for key, value in document.items() if isinstance(value, list)}
        rest = {key: value for key, value in document.items() if key not in lists}
        pathlib.Path(folder, "c.yaml").write_text(json.dumps(rest) if rest else "")
        pathlib.Path(folder, "c.d", "1.yaml").write_text(json.dumps(lists))
        return subprocess.run([program(daemon), "--config", f"{folder}/c.yaml", "--check-config"],
                              capture_output=True).returncode == 0


def changed(document, place, value):
    """A copy with another value at a place; None removes it."""
    result = copy.deepcopy(document)
    at = result
    for step in place[:-1]:
        at = at[step]
    if value is None:
        at.pop(place[-1], None)
    else:
        at[place[-1]] = value
    return result


SERVER = {"listen": [{"tcp": "127.0.0.1:1235"}],
          "exports": [{"name": "v", "path": "/v", "allow": [{"session": "s", "access": "rw"}]}]}
CLIENT = {"sessions": [{"name": "s", "paths": [{"tcp": "127.0.0.1:1235"}]}],
          "devices": [{"name": "d", "session": "s", "volume": "v", "access": "rw", "nbd": "unix:/d"}]}
E, A = ("exports", 0), ("exports", 0, "allow", 0)
S, P, D = ("sessions", 0), ("sessions", 0, "paths", 0), ("devices", 0)
DELAY = {"kind": "delay", "of": {"kind": "memory", "size": "1MiB"}, "read": "1ms"}
PIECES = {
    "rnbd-server": (SERVER, [
        (("listen",), [None, [], [{}], [{"tcp": "[::1]:0"}], [{"tcp": "host:1"}], "x",
                       [{"rdma": "10.0.0.1:1"}], [{"rdma": "0.0.0.0:1"}], [{"tcp": "10.0.0.1:1", "rdma": "10.0.0.1:1"}],
                       [{"rdma": "10.0.0.1:1", "kernel": {"allow": [{"session": "k"}]}}],
                       [{"tcp": "10.0.0.1:1", "kernel": {"allow": [{"session": "k"}]}}],
                       [{"rdma": "10.0.0.1:1", "kernel": {"allow": []}}]]),
        (("exports",), [None, [], "x"]), (E + ("name",), [None, "a b", "..", "/x", "x" * 255, "ok/ay"]),
        (E + ("path",), [None, "v", "/a/../b", "/", "/v/"]),
        (E + ("size",), ["1GiB", "1GB", 4096, "x", True]), (E + ("io",), ["direct", "Direct"]),
        (E + ("block_size",), [512, 4096, 1024]), (E + ("read_only",), [False, "maybe"]),
        (E + ("storage",), [{"kind": "memory", "size": "1MiB"}]), (E + ("sizes",), ["1GiB"]),
        (A + ("session",), [None, "a.b", "a/b", "a*", "x"]), (A + ("address",), ["10.0.0.0/8", "::1", "host"]),
        (A + ("access",), [None, "ro", "migration", "rwx"]),
        (("exports",), [[{"name": "n", "storage": one}] for one in (
            {"kind": "memory", "size": "1MiB"}, {"kind": "null", "size": 4096}, {"kind": "memory"},
            {"kind": "path", "path": "/p", "io": "direct"}, {"kind": "path", "size": "1MiB"}, {"kind": "tape"},
            {"kind": "nbd", "uri": "nbd://h"}, {"kind": "nbd", "uri": "http://h"}, {"kind": "nbd"},
            DELAY, dict(DELAY, of=DELAY), dict(DELAY, when="during"), dict(DELAY, gate="/g", gate_count=2),
            dict(DELAY, flush="fast"), {"size": "1MiB"})]),
        (("amend",), [None, [], [{"export": "v", "size": "1GiB"}], [{"export": "v"}], [{"size": 4096}],
                      [{"export": "v", "size": "x"}], [{"export": "v", "size": 4096, "io": "direct"}]]),
        (("queue_depth",), [1, 1024, 0, 40000, "many"]), (("max_io_size",), ["64KiB", "64K"]),
        (("always_invalidate",), [False, "if-possible", "no"]), (("data_checksum",), [True, 1]),
        (("heartbeat",), [{"interval": "1s", "timeout": "5s"}, {"interval": 1}, {"every": "1s"}]),
        (("prompt_sends",), [True, False, "off"]), (("batch_scheduling",), [False, "off"]), (("registered_io",), [True, "off"]), (("read_portions",), [False, 0]),
        (("prompt_storage",), [False, "no"]), (("zero_copy_sends",), [True, "auto"]),
        (("polled_io",), [True, "on"]),
        (("busy_poll",), ["0us", "50us", "1ms", 50]), (("cpus",), [0, "0-3,8", "3-", "all", 1024, [0]]),
        (("log",), [{"level": "info"}, {"level": "loud"}]), (("control",), ["/run/x", "run/x"]),
        (("surprise",), [1])]),
    "rnbd-client": (CLIENT, [
        (S + ("paths",), [None, [], [{"tcp": "127.0.0.1@127.0.0.2:1"}], [{"tcp": "x"}], [{}],
                        [{"rdma": "127.0.0.1:1"}], [{"rdma": "127.0.0.1:1", "tcp": "127.0.0.1:1"}]]),
        (P + ("source",), ["127.0.0.1", "host"]), (P + ("priority",), ["standby", "first"]),
        (S + ("policy",), ["min-latency", "best"]), (S + ("hold_time",), ["forever", "1min", "never", 5]),
        (S + ("fail_fast_time",), ["never", "1s", "forever"]),
        (S + ("max_reconnect_attempts",), ["forever", -1, 0, 5, -2, 1000001]),
        (S + ("reconnect_delay",), [{"min": "1ms", "max": "1s"}, {"min": 1}]),
        (S + ("request_deadline",), ["1s", 1]), (S + ("connect_timeout",), ["1s", 1]), (S + ("probe_timeout",), ["1s", "soon"]),
        (S + ("connections",), [1, 64, 0, 65]), (S + ("data_checksum",), [False, "off"]),
        (S + ("heartbeat",), [{"interval": "100ms"}, {"interval": "1"}]),
        (("amend",), [None, [], [{"session": "s"}], [{"policy": "round-robin"}], [{"session": "s", "policy": "best"}],
                      [{"session": "s", "add_paths": [{"tcp": "127.0.0.1:1235", "priority": "standby"}]}],
                      [{"session": "s", "add_paths": [{"tcp": "x"}]}], [{"session": "s", "paths": []}],
                      [{"session": "s", "remove_paths": ["rdma:10.0.0.2@10.0.0.1:1"]}],
                      [{"session": "s", "remove_paths": ["x"]}]]),
        (D + ("name",), [None, "d/e", "a b"]), (D + ("session",), [None]), (D + ("volume",), [None, "../v"]),
        (D + ("access",), [None, "ro", "x"]),
        (D + ("nbd",), [None, ["unix:/a", "tcp:127.0.0.1:0"], [], "unix:a", "udp:x", "unix:/"]),
        (D + ("device",), ["auto", "/dev/nbd3", "/dev/sda"]), (D + ("device_connections",), [1, 17]),
        (("prompt_sends",), [False, 1]), (("batch_scheduling",), [False, 0]), (("busy_poll",), ["50us", "never"]), (("cpus",), [1, "1,3", -1, ""]),
        (("log",), [{"level": "error"}, {"levels": "error"}]), (("control",), ["/run/x", "x"]),
        (("surprise",), [1])]),
}

for daemon, (base, pieces) in PIECES.items():
    schema = json.loads(read(f"config/{daemon}.schema.json"))
    asked = set()
    own = {"rnbd-server": ["rnbd-server/kernel_listener.cpp"]}.get(daemon, [])
    for source in (f"{daemon}/config.cpp", "daemon/config/common.cpp", *own):
        asked |= {one or other for one, other in ASKS.findall(read(source))}
    for key in sorted(asked ^ keys_of(schema)):
        report.add(daemon, f"key {key} is {'not in the schema' if key in asked else 'in the schema only'}")
    if not valid(schema, yaml.safe_load(read(f"config/{daemon}.yaml")), schema):
        report.add(daemon, "its example is not valid by the schema")
    for place, values in [((), [])] + pieces:
        for value in values or [None]:
            document = changed(base, place, value) if place else base
            by_schema, by_parser = valid(schema, document, schema), accepted(daemon, document)
            in_two = accepted_in_two_files(daemon, document)
            if by_schema != by_parser or by_schema != in_two:
                report.add(daemon, f"{json.dumps(document)}: schema {by_schema}, parser {by_parser}, "
                                   f"in two files {in_two}")
            checked += 1
report.finish(checked)
