"""docs/reference/attributes.md is what the daemons' tables and the tests say. --write makes it so."""
import attribute_scenario as scenario
from harness import *

DOCUMENT = os.path.join(os.path.dirname(__file__), "../../docs/reference/attributes.md")
HEAD = """# Attributes of kernel RNBD

The tree that the kernel modules rtrs-client, rtrs-server, rnbd-client and rnbd-server show in `/sys`, as
`rnbd-client` and `rnbd-server` have it: with `rnbdctl get`, `set` and `tree`, on the control socket
([control protocol](control-protocol.md)), and as files with `rnbd-sysfs`. Paths are those below `/sys`. How to use
them: [moving from kernel RNBD](../how-to/move-from-kernel-rnbd.md).

This page is made by `tests/integration/attributes_are_documented.py --write` from the tables in `rnbd-client/attributes.cpp`
and `rnbd-server/attributes.cpp`; the test of an attribute is the function of that name in
`tests/integration/attribute_scenario.py`, which runs over `rnbdctl` and over files.

A write is done when its effect is there, or when that cannot be; after 40 s it is `ETIMEDOUT`. Every text that is read
ends with a newline; one newline at the end of what is written does not count. Writing to a file of mode 0444 is
`EACCES`, what is not there `ENOENT`, and what has gone while it was open `ENODEV`. A name that would be there twice gets
`#2` behind it; a path to another port than that of the session's first path gets `#PORT`.
"""


def tests_of(pattern):
    return [f"`{function.__name__}`" for function, patterns in scenario.TESTS if pattern in patterns]


def section(title, rows):
    text = f"\n## {title}\n\n| Path | Mode | Read | Write | Test | Remark |\n| --- | --- | --- | --- | --- | --- |\n"
    for row in rows:
        tests = tests_of(row["pattern"])
        check(tests, f"no test names {row['pattern']}")
        text += (f"| `{row['pattern']}` | {row['mode']} | {row['read']} | {row['write'] or '-'} | "
                 f"{', '.join(tests)} | {row['remark']} |\n")
    return text


def document(client, server):
    text = HEAD
    for title, rows, folder in [("rtrs-client", client, "class/rtrs-client"),
                                ("rnbd-client", client, ("class/rnbd-client", "block")),
                                ("rtrs-server", server, "class/rtrs-server"),
                                ("rnbd-server", server, "class/rnbd-server")]:
        text += section(title, [row for row in rows if row["pattern"].startswith(folder)])
    return text


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    client = lab.client(server, {"vol1": {}})
    rows = [daemon.ask("attribute_table")["attributes"] for daemon in (client, server)]
    known = {row["pattern"] for row in rows[0] + rows[1]}
    for function, patterns in scenario.TESTS:
        check(set(patterns) <= known, f"{function.__name__} names what is not there: {set(patterns) - known}")
    wanted = document(*rows)
    if "--write" in sys.argv:
        with open(DOCUMENT, "w") as out:
            out.write(wanted)
    with open(DOCUMENT) as text:
        found = text.read()
    if found != wanted:
        import difflib
        print("".join(difflib.unified_diff(found.splitlines(True), wanted.splitlines(True))))
    check(found == wanted, "attributes.md differs: run this test with --write")
    print(f"{len(known)} attributes")
