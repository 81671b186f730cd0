"""Line length, white space and leftovers in everything that people read."""

import re

from tidy import Report, read, tree

TEXT = (".cpp", ".h", ".py", ".md", ".txt", ".cmake", ".yaml", ".json", ".in", ".1", ".5", ".7", ".8")
NAMES = ("scripts/", ".ci/", "tests/fuzz/run", ".clang-format", ".gitignore")
COLUMNS = 100
# Spelled apart, so that this file does not find itself.
LEFTOVERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK|W" r"IP|NO" r"COMMIT)\b|^(<{7}|>{7}|={7})( |$)")


RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)


def raw_string_lines(text):
    """Numbers of the lines that a raw string touches: a break would change them."""
    found = set()
    for string in RAW_STRING.finditer(text):
        first = text.count("\n", 0, string.start()) + 1
        found.update(range(first, first + string[0].count("\n") + 1))
    return found


def in_a_table(line):
    """A comment with columns, or text that cannot be broken: a URL."""
    comment = line.lstrip()
    return comment.startswith(("//", "*")) and ("|" in comment or "://" in comment)


report = Report()
checked = 0
for file in tree():
    if not (file.endswith(TEXT) or file.startswith(NAMES)) or "/corpus/" in file:
        continue
    checked += 1
    text = read(file)
    if text and not text.endswith("\n"):
        report.add(file, "does not end with a newline")
    if text.endswith("\n\n"):
        report.add(file, "ends with an empty line")
    code = file.endswith((".cpp", ".h"))
    raw = raw_string_lines(text) if code else set()
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{file}:{number}"
        if line != line.rstrip():
            report.add(where, "trailing white space")
        if "\t" in line and file.endswith((".cpp", ".h", ".py", ".md", ".yaml")):
            report.add(where, "a tab")
        if LEFTOVERS.search(line):
            report.add(where, f"a leftover: {line.strip()}")
        if code and len(line) > COLUMNS and number not in raw and not in_a_table(line):
            report.add(where, f"{len(line)} columns, more than {COLUMNS}")
report.finish(checked)
