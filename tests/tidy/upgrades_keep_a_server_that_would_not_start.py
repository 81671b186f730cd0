"""An upgrade of the server's package restarts the server, but not where its configuration has errors."""

import pathlib
import subprocess
import tempfile

from tidy import Report, read

SCRIPT = "debian/rnbd-server.postinst"
CONFIGURATION = "/etc/rnbd/server.yaml"
# As debhelper's: it restarts where there was a version before.
DEBHELPER = 'if [ -n "$2" ]; then echo restart; else echo start; fi'
report = Report()
checked = 0

# The script's words, whether there is a configuration, how its check ends, what is done.
for words, there, check, wanted in (
        (["configure"], True, 0, "start"), (["configure", ""], True, 3, "start"),
        (["configure", "0.1.0"], True, 0, "restart"), (["configure", "0.1.0"], True, 3, "start"),
        (["configure", "0.1.0"], False, 3, "restart"), (["abort-upgrade", "0.1.0"], True, 3, "restart")):
    checked += 1
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        if there:
            (root / "server.yaml").touch()
        (root / "rnbd-server").write_text(f"#!/bin/sh\necho wrong\nexit {check}\n")
        (root / "rnbd-server").chmod(0o755)
        text = read(SCRIPT).replace(CONFIGURATION, f"{root}/server.yaml").replace("#DEBHELPER#", DEBHELPER)
        (root / "postinst").write_text(text)
        done = subprocess.run(["/bin/sh", root / "postinst", *words], capture_output=True, text=True,
                              env={"PATH": f"{root}:/usr/bin:/bin"})
        if (done.returncode, done.stdout) != (0, wanted + "\n"):
            report.add(SCRIPT, f"{words}, check {check}: exit {done.returncode}: {done.stdout}{done.stderr}")
        kept = there and check != 0 and words == ["configure", "0.1.0"]
        if ("wrong\nrnbd-server is not restarted" in done.stderr) != kept:
            report.add(SCRIPT, f"{words}, check {check}: says {done.stderr!r}")

report.finish(checked)
