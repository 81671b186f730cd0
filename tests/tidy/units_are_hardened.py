"""systemd finds nothing wrong with the units, and what they leave open is little and explained.

The thresholds are of `systemd-analyze security`. Whatever it counts against a unit is named in a
comment of that unit, with the reason; and nothing is named there that it does not count.
"""

import pathlib
import re
import shutil
import subprocess
import tempfile

from tidy import Report, read, skip

EXPOSURE_MAX = {"rnbd-server.service": 2.0, "rnbd-client.service": 4.0,
                "rnbd-client-down.service": 5.0}
# Lines without which boot, stop, restart or I/O would be another matter.
LINES = {
    "rnbd-server.service": ["Type=notify", "WatchdogSec=30s", "TimeoutStopSec=60s", "User=rnbd",
                            "LimitMEMLOCK=infinity", "StateDirectory=rnbd"],
    "rnbd-client.service": ["Type=notify", "WatchdogSec=30s", "TimeoutStopSec=30s",
                            "LimitMEMLOCK=infinity", "Before=remote-fs-pre.target",
                            "ReadWritePaths=-/sys/devices/virtual/block",
                            "Wants=rnbd-client-down.service"],
    "rnbd-client-down.service": ["Type=oneshot", "RemainAfterExit=yes", "After=rnbd-client.service"],
}
# Not counted apart from User=, or a consequence of PrivateDevices= being off.
SAME_AS = {"DeviceAllow=": "PrivateDevices=", "RootDirectory=/RootImage=": "RootDirectory=",
           "User=/DynamicUser=": "User="}

if not shutil.which("systemd-analyze"):
    skip("systemd-analyze (package systemd) is not installed")


def analyze(folder, *words):
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, cwd=folder,
                          env={"SYSTEMD_UNIT_PATH": f"{folder}:", "PATH": "/usr/bin:/bin",
                               "LC_ALL": "C.UTF-8"})


def name_in_unit(setting):
    """As the comment of a unit names a row: "RestrictAddressFamilies=~AF_(INET|INET6)" and so on."""
    setting = SAME_AS.get(setting, setting)
    return {"RestrictAddressFamilies=~AF_(INET|INET6)": "RestrictAddressFamilies=~AF_INET AF_INET6",
            "CapabilityBoundingSet=~CAP_SYS_ADMIN": "CAP_SYS_ADMIN",
            "ProcSubset=": "ProcSubset=pid"}.get(setting, setting)


def explained(text):
    """Names before the colon of each list item behind "still counts"."""
    found = set()
    comment = text.split("still counts, and why:\n")[1]
    for item in re.findall(r"^# - (.*?):(?= )", comment, re.MULTILINE):
        found |= {name.strip() for name in item.split(",")}
    return found


report = Report()
checked = 0
with tempfile.TemporaryDirectory(prefix="rnbd-units-") as folder:
    sbin = pathlib.Path(folder) / "sbin"
    sbin.mkdir()
    for name in ("rnbd-server", "rnbd-client", "rnbdctl"):
        (sbin / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (sbin / name).chmod(0o755)
    for unit in EXPOSURE_MAX:
        text = re.sub(r"@CMAKE_INSTALL_FULL_S?BINDIR@", str(sbin), read(f"systemd/{unit}.in"))
        if left := re.findall(r"@\w+@", text):
            report.add(unit, f"{left} is nothing that this check knows")
        (pathlib.Path(folder) / unit).write_text(text, encoding="utf-8")
    for unit, limit in EXPOSURE_MAX.items():
        text = read(f"systemd/{unit}.in")
        checked += 1
        verified = analyze(folder, "verify", "--man=no", f"./{unit}")
        said = (verified.stdout + verified.stderr).strip()
        if verified.returncode != 0 or said:
            report.add(unit, f"systemd-analyze verify: {said}")
        judged = analyze(folder, "security", "--offline=true", f"--threshold={limit * 10:.0f}",
                         "--no-pager", f"./{unit}")
        level = re.search(r"Overall exposure level for \S+: ([\d.]+)", judged.stdout)
        if level is None:
            report.add(unit, f"systemd-analyze security: {judged.stderr.strip()}")
            continue
        print(f"{unit}: {level[1]}, at most {limit}")
        if judged.returncode != 0 or float(level[1]) > limit:
            report.add(unit, f"exposure is {level[1]}, more than {limit}")
        counted = {name_in_unit(line.split()[1]) for line in judged.stdout.splitlines()
                   if line.startswith("✗")}
        for name in sorted(counted - explained(text)):
            report.add(unit, f"{name} is counted by systemd-analyze security, no comment says why")
        for name in sorted(explained(text) - counted):
            report.add(unit, f"a comment explains {name}, which is not counted")
        for line in LINES[unit]:
            if not re.search(rf"^{re.escape(line)}$", text, re.MULTILINE):
                report.add(unit, f"has no line {line}")
    checked += 1
    users = subprocess.run(["systemd-sysusers", "--dry-run", "-"], capture_output=True, text=True,
                           input=read("systemd/rnbd.sysusers.conf"))
    if users.returncode != 0:
        report.add("rnbd.sysusers.conf", f"systemd-sysusers: {users.stderr.strip()}")
report.finish(checked)
