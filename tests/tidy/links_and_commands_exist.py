"""Relative links of documents lead somewhere, and the README's two commands can be run."""

import os
import re

from tidy import Report, ROOT, read, tree

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
# Paths in backquotes that begin with a folder of the tree.
PATH = re.compile(r"`((?:docs|tests|scripts|config|rtrs|rnbd|rnbd-server|rnbd-client|rnbdctl|daemon|"
                  r"systemd|cmake)/[\w./-]*\w)`")


def anchors(name):
    """Anchors of the headings of a document, as forges make them."""
    heads = re.findall(r"^#+ +(.*)$", re.sub(r"```.*?```", "", read(name), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


report = Report()
checked = 0
for file in tree():
    if not file.endswith(".md"):
        continue
    folder = os.path.dirname(file)
    text = re.sub(r"^```.*?^```", "", read(file), flags=re.DOTALL | re.MULTILINE)
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        checked += 1
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(folder, path)) if path else file
        if not (ROOT / target).exists():
            report.add(file, f"links to {link}, which is not there")
        elif anchor and target.endswith(".md") and anchor not in anchors(target):
            report.add(file, f"links to {link}: no such heading")
    for path in PATH.findall(text):
        checked += 1
        if not (ROOT / path).exists() and not (ROOT / folder / path).exists():
            report.add(file, f"names {path}, which is not there")

readme = read("README.md")
for command in ("scripts/quickstart", "scripts/check"):
    checked += 1
    if not re.search(rf"^ *{command}\b", readme, re.MULTILINE):
        report.add("README.md", f"does not show {command}")
    if not os.access(ROOT / command, os.X_OK):
        report.add(command, "is not there or not executable")
report.finish(checked)
