"""Every .cpp is named in a CMakeLists.txt (or *.cmake) of its folder or one above it.

Those of tests are named after what they test, and the folder says that they do.
"""

import pathlib
import re

from tidy import Report, read, tree

files = tree()
lists = [f for f in files if f.endswith("CMakeLists.txt") or f.endswith(".cmake")]
words = {f: set(re.findall(r"[\w./${}-]+\.cpp\b", re.sub(r"#.*", "", read(f)))) for f in lists}
report = Report()
checked = 0
for file in files:
    if not file.endswith(".cpp"):
        continue
    checked += 1
    if re.search(r"(^|/)test_[^/]*$|_test\.cpp$", file):
        report.add(file, "is named after a test, not after what it tests")
    named = False
    for cmake, names in words.items():
        folder = pathlib.PurePath(cmake).parent
        for name in names:
            base = name.replace("${PROJECT_SOURCE_DIR}/", "").replace("${CMAKE_CURRENT_SOURCE_DIR}/", "")
            if base == file or str(folder / base) == file:
                named = True
    if not named:
        report.add(file, "is built by nobody: no CMakeLists.txt names it")
report.finish(checked)
