"""A purge of the server's package removes what the server noted, and no volume that lies beside it."""

import pathlib
import subprocess
import tempfile

from tidy import Report, read

SCRIPT = "debian/rnbd-server.postrm"
FOLDER = "/var/lib/rnbd"
report = Report()

for volumes in ([], ["vol1.img", "tenant/vol2.img"]):
    with tempfile.TemporaryDirectory() as root:
        state = pathlib.Path(root) / "rnbd"
        state.mkdir()
        for name in ["server.epochs", "server.epochs.new", "server.writers", "server.writers.new", *volumes]:
            (state / name).parent.mkdir(exist_ok=True)
            (state / name).write_text("x")
        here = pathlib.Path(root) / "postrm"
        here.write_text(read(SCRIPT).replace(FOLDER, str(state)))
        for action in ("remove", "purge", "purge"):
            done = subprocess.run(["sh", here, action], capture_output=True, text=True)
            if done.returncode != 0:
                report.add(SCRIPT, f"{action}: exit {done.returncode}: {done.stderr}")
            if action == "remove" and not (state / "server.epochs").exists():
                report.add(SCRIPT, "a removal takes the state")
        left = sorted(str(p.relative_to(state)) for p in state.rglob("*") if p.is_file())
        if left != sorted(volumes):
            report.add(SCRIPT, f"a purge leaves {left} of the volumes {volumes}")
        if not volumes and state.exists():
            report.add(SCRIPT, "a purge leaves an empty folder")

report.finish(checked=2)
