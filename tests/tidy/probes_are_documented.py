"""The daemons have the static probes that docs/reference/probes.md lists, with as many arguments.

Read from the ELF notes of the built programs. The bpftrace scripts use these and no others.
"""

import re
import shutil
import subprocess

from tidy import Report, program, read, skip

DOCUMENT = "docs/reference/probes.md"
SCRIPTS = {"rnbd-client": "docs/examples/rnbd-client.bt", "rnbd-server": "docs/examples/rnbd-server.bt"}


def notes(path):
    """{name: number of arguments} of the provider rnbd."""
    text = subprocess.run(["readelf", "-nW", path], capture_output=True, text=True, check=True).stdout
    found = {}
    for block in re.split(r"\n +stapsdt ", text)[1:]:
        if not re.search(r"Provider: rnbd\n", block):
            continue
        name = re.search(r"Name: (\w+)\n", block)[1]
        # "-4@%eax 8@8(%rbx)": each begins with its size.
        arguments = re.findall(r"-?\d+@", re.search(r"Arguments: ?(.*)", block)[1])
        if found.setdefault(name, len(arguments)) != len(arguments):
            raise SystemExit(f"{path}: {name} has arguments of two kinds")
    return found


if not shutil.which("readelf"):
    skip("readelf is not installed")
documented = {}
for name, owner, arguments in re.findall(r"^\| `(\w+)` \| `([\w-]+)` \| (.*?) \|", read(DOCUMENT),
                                         re.MULTILINE):
    documented.setdefault(owner, {})[name] = len(arguments.split(","))

everywhere = {name: count for listed in documented.values() for name, count in listed.items()}

report = Report()
checked = 0
built = {daemon: notes(program(daemon)) for daemon in documented}
if not any(built.values()):
    skip("built without probes: sys/sdt.h (systemtap-sdt-dev) was not found")
for daemon, listed in documented.items():
    for name in sorted(built[daemon].keys() | listed.keys()):
        checked += 1
        # Both daemons have the whole transport; who passes a probe is what the page says.
        has, says = built[daemon].get(name), everywhere.get(name)
        if has != says:
            report.add(daemon, f"{name}: {has} arguments in the program, {says} in {DOCUMENT}")
    script = read(SCRIPTS[daemon])
    used = re.findall(r"^usdt:/usr/sbin/([\w-]+):rnbd:(\w+)", script, re.MULTILINE)
    if not used:
        report.add(SCRIPTS[daemon], "uses no probe")
    blocks = re.findall(r"^usdt:/usr/sbin/[\w-]+:rnbd:(\w+)(.*?)(?=^usdt:|^END|\Z)", script,
                        re.MULTILINE | re.DOTALL)
    for name, block in blocks:
        beyond = {int(number) for number in re.findall(r"\barg(\d+)", block)
                  if int(number) >= listed.get(name, 0)}
        if beyond:
            report.add(SCRIPTS[daemon], f"{name} has no argument {sorted(beyond)}")
    if [name for name, _ in blocks] != [name for _, name in used]:
        report.add(SCRIPTS[daemon], "a probe of it is not understood by this check")
    for owner, name in used:
        checked += 1
        if owner != daemon or name not in listed:
            report.add(SCRIPTS[daemon], f"uses {owner}:{name}, which is not there")
report.finish(checked)
