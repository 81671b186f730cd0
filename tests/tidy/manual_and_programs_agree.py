"""Manual pages name what programs have and parsers know, and nothing else.

Options, sub-commands and exit codes come from --help; configuration keys from the calls of the
parser that ask for them. In the pages they are list items: `.It Fl -name`, `.It Cm name`, `.It 3`.
"""

import re
import shutil
import subprocess

from tidy import BUILD, Report, ROOT, program, read

report = Report()
checked = 0
MAN = "docs/man/"
ASKS = re.compile(r'\b(?:required|optional)(?:_list|_map)?\(\s*"(\w+)"|\b(?:find|require)\(\s*"(\w+)"')


def compare(where, kind, has, manual):
    global checked
    checked += len(has)
    for name in sorted(has - manual):
        report.add(where, f"{kind} {name} is not in the manual")
    for name in sorted(manual - has):
        report.add(where, f"{kind} {name} is in the manual only")
    if not has:
        report.add(where, f"no {kind} was found: has the way to find them changed?")


def help_of(name, *command):
    return subprocess.run([program(name), *command, "--help"], capture_output=True, text=True,
                          check=True).stdout


def options_in(text):
    found = set()
    for line in text.splitlines():
        head = re.match(r"  (-[\w-]+(?:,--[\w-]+)*|--[\w-]+)", line)
        if head:
            found |= set(head[1].split(","))
    return found


def section(text, title):
    """Names that begin the lines of a section of --help."""
    found = re.search(rf"^{title}:\n((?:  .*\n)+)", text, re.MULTILINE)
    return set(re.findall(r"^  (\w+)  ", found[1], re.MULTILINE)) if found else set()


def items(page, macro):
    """Arguments of list items `.It MACRO name`."""
    found = set()
    for line in read(MAN + page).splitlines():
        if not line.startswith(f".It {macro} "):
            continue
        words = line[4:].split()
        found |= {words[i + 1] for i in range(len(words) - 1) if words[i] == macro}
    return found


def check_options(page, texts):
    has = set().union(*(options_in(text) for text in texts))
    compare(page, "option", has, {f"-{name}" for name in items(page, "Fl")})


def check_exit_status(page, codes):
    text = read(MAN + page).split(".Sh EXIT STATUS", 1)[-1].split("\n.Sh", 1)[0]
    compare(page, "exit status", codes, set(re.findall(r"^\.It (\d+)$", text, re.MULTILINE)))


def keys_of(*sources):
    asked = (ASKS.findall(read(source)) for source in sources)
    return {one or other for found in asked for one, other in found}


for daemon in ("rnbd-server", "rnbd-client"):
    check_options(f"{daemon}.8", [help_of(daemon)])
    codes = read("daemon/command_line.h").split("namespace exit_code {")[1].split("}")[0]
    check_exit_status(f"{daemon}.8", set(re.findall(r"= (\d+);", codes)))
    own = {"rnbd-server": ["rnbd-server/kernel_listener.cpp"]}.get(daemon, [])
    compare(f"{daemon}.yaml.5", "key",
            keys_of(f"{daemon}/config.cpp", "daemon/config/common.cpp", *own),
            items(f"{daemon}.yaml.5", "Cm"))

functions = set(re.findall(r"\b(rnbd_\w+)\(", read("librnbd/librnbd.h")))
compare("librnbd.3", "function", functions, items("librnbd.3", "Fn"))
compare("nbdkit-rnbd-plugin.1", "parameter", set(
    re.findall(r'strcmp\(key, "(\w+)"\) == 0\) return', read("nbdkit/parameters.c"))),
    items("nbdkit-rnbd-plugin.1", "Cm"))
compare("fio-rnbd.1", "option", set(
    re.findall(r'^ +\.name = "(\w+)",$', read("fio-engine/options.c"), re.MULTILINE)) - {"rnbd"},
    {name for name in items("fio-rnbd.1", "Cm") if name not in {"hold-time"}})
exported = set(re.findall(r"^\s+(rnbd_\w+);", read("librnbd/librnbd.map"), re.MULTILINE))
compare("librnbd.map", "function", functions, exported)
compare("librnbd.3", "setting", set(re.findall(r'^    \{"([\w-]+)",', read("librnbd/settings.cpp"),
                                               re.MULTILINE)), items("librnbd.3", "Cm"))
compare("librnbd.3", "event", set(re.findall(r"\bRNBD_EVENT_\w+", read("librnbd/librnbd.h"))),
        {name for name in items("librnbd.3", "Dv") if name.startswith("RNBD_EVENT_")})

if (BUILD / "rnbd-sysfs" / "rnbd-sysfs").exists():
    check_options("rnbd-sysfs.8", [help_of("rnbd-sysfs")])
    codes = read("rnbd-sysfs/main.cpp").split("namespace exit_code {")[1].split("}")[0]
    check_exit_status("rnbd-sysfs.8", set(re.findall(r"= (\d+);", codes)))
else:
    print("NOT CHECKED: rnbd-sysfs was not built, so nobody compares rnbd-sysfs.8 with it")

ctl = help_of("rnbdctl")
commands = section(ctl, "Subcommands")
compare("rnbdctl.8", "sub-command", commands, items("rnbdctl.8", "Cm"))
helps = {(command,): help_of("rnbdctl", command) for command in sorted(commands)}
for (command,), text in list(helps.items()):
    nested = section(text, "Subcommands")
    helps |= {(command, word): help_of("rnbdctl", command, word) for word in sorted(nested)}
    if nested:
        compare("rnbdctl.8", f"sub-command of {command}", nested,
                set(re.findall(rf"^\.It Cm {command} (\w+)(?: |$)", read(MAN + "rnbdctl.8"), re.MULTILINE)) - {"Op"})
check_options("rnbdctl.8", [ctl] + list(helps.values()))
check_exit_status("rnbdctl.8", section(ctl, "Exit codes"))

listed = read(MAN + "CMakeLists.txt")
for page in sorted((ROOT / MAN).glob("*.[0-9]")):
    if page.name not in listed and page.name not in read("nbdkit/CMakeLists.txt") + read(
            "fio-engine/CMakeLists.txt"):
        report.add(page.name, "is not installed: docs/man/CMakeLists.txt does not name it")
    if not shutil.which("man"):
        print(f"NOT CHECKED: man is not installed, so nobody reads {page.name} for warnings")
        continue
    shown = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True,
                           env={"LC_ALL": "C.UTF-8", "MANWIDTH": "100", "PATH": "/usr/bin:/bin"})
    if shown.returncode != 0 or shown.stderr:
        report.add(page.name, f"man complains: {shown.stderr.strip()}")
    checked += 1
report.finish(checked)
