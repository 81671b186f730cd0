"""The examples in config/ and the configurations inside of documents are accepted by the daemons.

A fenced yaml block of a document is checked if its first line is a comment that names the daemon:
`# rnbd-server` or `# rnbd-client`, possibly with more behind it.
"""

import re
import subprocess
import tempfile

from tidy import Report, ROOT, program, read, tree

BLOCK = re.compile(r"^( *)```yaml\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
report = Report()
checked = 0


def check(where, daemon, path):
    result = subprocess.run([program(daemon), "--config", path, "--check-config"],
                            capture_output=True, text=True)
    if result.returncode != 0:
        report.add(where, f"{daemon} --check-config ends with {result.returncode}:\n{result.stderr}")


for daemon in ("rnbd-server", "rnbd-client"):
    check(f"config/{daemon}.yaml", daemon, ROOT / "config" / f"{daemon}.yaml")
    checked += 1
for file in tree():
    if not file.endswith(".md"):
        continue
    text = read(file)
    for block in BLOCK.finditer(text):
        first = block[2].lstrip().split("\n", 1)[0]
        daemon = re.match(r"# (rnbd-server|rnbd-client)\b", first)
        where = f"{file}:{text.count(chr(10), 0, block.start()) + 1}"
        if not daemon:
            report.add(where, "a yaml block that does not say whose it is (# rnbd-server, # rnbd-client)")
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            config.write(re.sub(f"^{block[1]}", "", block[2], flags=re.MULTILINE))
            config.flush()
            check(where, daemon[1], config.name)
        checked += 1
report.finish(checked)
