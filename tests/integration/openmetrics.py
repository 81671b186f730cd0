"""A strict reader of the OpenMetrics 1.0 text format, written from its specification.

parse() raises Malformed for what a monitoring system may refuse.
"""

import collections
import re
import socket

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"')
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z")
SUFFIXES = {"gauge": {""}, "counter": {"_total", "_created"}, "info": {"_info"},
            "histogram": {"_bucket", "_count", "_sum", "_created"}}


class Malformed(Exception):
    pass


class Family:
    def __init__(self, name):
        self.name, self.type, self.unit, self.help = name, None, "", None
        self.samples = []  # (suffix, labels, value)

    def value(self, suffix="", **labels):
        """Of the one sample that has these labels."""
        found = [value for other, has, value in self.samples
                 if other == suffix and labels.items() <= has.items()]
        if len(found) != 1:
            raise AssertionError(f"{self.name}{suffix} with {labels}: {found}")
        return found[0]

    def total(self, suffix="", **labels):
        return sum(value for other, has, value in self.samples
                   if other == suffix and labels.items() <= has.items())


def number(text):
    if text in ("+Inf", "-Inf", "NaN"):
        return float(text.replace("Inf", "inf"))
    if not NUMBER.match(text):
        raise Malformed(f"{text} is no number")
    return float(text)


def labels_of(text):
    labels, at = {}, 0
    while at < len(text):
        found = LABEL.match(text, at)
        if not found:
            raise Malformed(f"labels {text}")
        if found[1] in labels:
            raise Malformed(f"label {found[1]} twice")
        labels[found[1]] = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), found[2])
        at = found.end()
        if at < len(text):
            if text[at] != "," or at + 1 == len(text):
                raise Malformed(f"labels {text}")
            at += 1
    return labels


def sample_of(line):
    found = re.match(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)\Z", line)
    if not found:
        raise Malformed(f"no sample: {line}")
    return found[1], labels_of(found[2] or ""), number(found[3])


def check_histogram(family):
    series = collections.defaultdict(list)
    for suffix, labels, value in family.samples:
        key = tuple(sorted((name, text) for name, text in labels.items() if name != "le"))
        series[key].append((suffix, labels.get("le"), value))
    for key, points in series.items():
        buckets = [(number(le), value) for suffix, le, value in points if suffix == "_bucket"]
        counts = [value for suffix, _, value in points if suffix == "_count"]
        sums = [value for suffix, _, value in points if suffix == "_sum"]
        where = f"{family.name} {key}"
        if not buckets or buckets[-1][0] != float("inf"):
            raise Malformed(f"{where}: no bucket +Inf at the end")
        if buckets != sorted(buckets) or len({le for le, _ in buckets}) != len(buckets):
            raise Malformed(f"{where}: buckets do not ascend")
        if counts != [buckets[-1][1]] or len(sums) != 1:
            raise Malformed(f"{where}: count {counts}, sum {sums}, last bucket {buckets[-1]}")


def parse(text):
    """{name of a family: Family}, in the order of the text."""
    if not text.endswith("# EOF\n"):
        raise Malformed("no # EOF at the end")
    families, current, seen = {}, None, set()
    for line in text.split("\n")[:-2]:
        if line.startswith("# "):
            kind, name, rest = (line[2:].split(" ", 2) + ["", ""])[:3]
            if kind not in ("TYPE", "UNIT", "HELP") or not NAME.match(name) or not rest:
                raise Malformed(line)
            if current is None or current.name != name:
                if name in families:
                    raise Malformed(f"{name} comes twice")
                current = families[name] = Family(name)
            if current.samples or getattr(current, kind.lower()):
                raise Malformed(f"{line}: twice, or behind its samples")
            setattr(current, kind.lower(), rest)
            continue
        name, labels, value = sample_of(line)
        if current is None or not name.startswith(current.name):
            raise Malformed(f"{line}: of no family, or not of the one before it")
        suffix = name[len(current.name):]
        if suffix not in SUFFIXES.get(current.type, ()):
            raise Malformed(f"{line}: a {current.type} has no {suffix}")
        if (name, tuple(sorted(labels.items()))) in seen:
            raise Malformed(f"{line}: a second time")
        seen.add((name, tuple(sorted(labels.items()))))
        if current.type in ("counter", "histogram") and not value >= 0:
            raise Malformed(f"{line}: negative")
        if (suffix == "_bucket") != ("le" in labels):
            raise Malformed(f"{line}: le")
        current.samples.append((suffix, labels, value))
    for family in families.values():
        if family.type not in SUFFIXES or not family.help:
            raise Malformed(f"{family.name} has type {family.type}, help {family.help}")
        if family.unit and not family.name.endswith("_" + family.unit):
            raise Malformed(f"{family.name} does not end with its unit {family.unit}")
        if family.type == "histogram":
            check_histogram(family)
    return families


def scrape(listener):
    """{name: Family} of a daemon whose metrics are at a Unix socket's path."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(listener)
        asked.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: asked.recv(65536), b"")).decode()
    return parse(answer.split("\r\n\r\n", 1)[1])
