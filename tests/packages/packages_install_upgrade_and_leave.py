"""Our packages go into a clean Debian 12, work there, are upgraded, removed and purged.

In a root made by debootstrap, whose commands run with mounts of their own. RNBD_PACKAGES=1 runs it (some
minutes, root, the network); RNBD_PACKAGES_FOLDER: packages built before, instead of building them;
RNBD_DEBIAN_ROOT: a root that debootstrap made before, which is copied.
"""

import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RNBD_BUILD", ROOT / "build"))
PACKAGES = ["librnbd-dev", "librnbd0", "nbdkit-plugin-rnbd", "rnbd-client", "rnbd-server", "rnbd-tools"]
SERVER = """\
listen:
  - tcp: 127.0.0.1:{port}
exports:
  - name: vol1
    path: /srv/rnbd/vol1.img
    size: 64MiB
    allow: [{{session: host-a, address: 127.0.0.1, access: rw}}]
"""
CLIENT = """\
sessions:
  - name: host-a
    paths: [{{tcp: "127.0.0.1:{port}"}}]
devices: []
"""
PORT = 21235


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def wait_until(what, condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < deadline, f"timed out waiting until {what}")
        time.sleep(0.05)


class Debian:
    """A root folder. Commands in it have /proc, and leave no mount behind."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder) / "root"
        made = os.environ.get("RNBD_DEBIAN_ROOT")
        if made:
            run("cp", "-a", made, self.root)
        else:
            run("debootstrap", "--variant=minbase", "bookworm", self.root)
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        # Nothing is started by packages here.
        policy = self.root / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)

    def command(self, *words):
        return ["unshare", "--mount", "--", "sh", "-c",
                'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"', self.root, "env", "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive",
                "LC_ALL=C.UTF-8", *words]

    def run(self, *words, ok=True):
        return run(*self.command(*words), ok=ok)

    def apt(self, *words):
        said = self.run("apt-get", "-q", "-y", "--no-install-recommends",
                        "-o", "APT::Sandbox::User=root",
                        "-o", "Dpkg::Use-Pty=0", *words)
        for line in said.stderr.splitlines():
            # dpkg says that it leaves /etc/rnbd, where the configurations are.
            ours = "rnbd" in line and "not empty so not removed" not in line
            check(not line.startswith(("E:", "dpkg: error")) and
                  (not ours or line.startswith(("Creat", "Removed"))), f"apt-get {words[0]}: {line}")
        return said

    def start(self, *words):
        return subprocess.Popen([str(word) for word in self.command(*words)],
                                stdin=subprocess.DEVNULL)

    def versions(self):
        listed = self.run("dpkg-query", "-W", "-f=${Package} ${Version} ${db:Status-Abbrev}\n")
        rows = [line.split() for line in listed.stdout.splitlines()]
        return {name: version for name, version, status in rows if name in PACKAGES and status == "ii"}


def run(*words, ok=True):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    if ok and done.returncode != 0:
        print(f"$ {' '.join(str(word) for word in words)}\n{done.stdout}{done.stderr}")
        raise AssertionError(f"{words[0]} ended with {done.returncode}")
    return done


def packages(folder):
    """The .deb of each package, without the debug symbols."""
    found = {name: glob.glob(f"{folder}/{name}_*.deb") for name in PACKAGES}
    for name, files in found.items():
        check(len(files) == 1, f"one {name} in {folder}: {files}")
    return [files[0] for files in found.values()]


def put(debian, files, where):
    target = debian.root / where
    target.mkdir()
    for file in files:
        shutil.copy(file, target)
    return [f"./{where}/{os.path.basename(file)}" for file in files]


def next_version(folder, files, version):
    """The same packages, one version on."""
    made = []
    for file in files:
        content = os.path.join(folder, "content")
        run("dpkg-deb", "-R", file, content)
        control = pathlib.Path(content) / "DEBIAN/control"
        control.write_text(control.read_text().replace(version, f"{version}+next"))
        made.append(os.path.join(folder, os.path.basename(file).replace(version, f"{version}+next")))
        run("dpkg-deb", "-b", content, made[-1])
        shutil.rmtree(content)
    return made


def what_was_installed(debian):
    check(debian.run("getent", "passwd", "rnbd").stdout.endswith(":/var/lib/rnbd:/usr/sbin/nologin\n"),
          "there is a user rnbd who cannot log in")
    stat = debian.run("stat", "-c", "%a %U %G", "/run/rnbd").stdout.strip()
    check(stat == "1775 root rnbd", f"/run/rnbd is {stat}")
    for unit, wanted in (("rnbd-server.service", "enabled"), ("rnbd-client.service", "enabled"),
                         ("rnbd-client-down.service", "static")):
        state = debian.run("systemctl", "is-enabled", unit).stdout.strip()
        check(state == wanted, f"{unit} is {state}")
        said = debian.run("systemd-analyze", "verify", "--man=no", f"/lib/systemd/system/{unit}")
        check(not said.stderr, f"systemd-analyze verify {unit}: {said.stderr}")
    for name in ("grafana-dashboard.json", "rnbd-client.bt", "rnbd-server.bt"):
        check((debian.root / "usr/share/doc/rnbd-tools/examples" / name).exists(), f"{name} is there")
    readme = debian.root / "usr/share/doc/rnbd-tools/README.md"
    for link in re.findall(r"\]\((docs/[^)#]+)", readme.read_text()):
        check((readme.parent / link).exists(), f"{link} of the README is there")
    check("name=rnbd" in debian.run("nbdkit", "--dump-plugin", "rnbd").stdout, "nbdkit has the plugin")
    check(debian.run("pkgconf", "--exists", "librnbd", ok=False).returncode == 0, "librnbd.pc is found")


def configure(debian):
    debian.run("install", "-d", "-o", "rnbd", "-g", "rnbd", "-m", "0750", "/srv/rnbd")
    # The unit's StateDirectory=.
    debian.run("install", "-d", "-o", "rnbd", "-g", "rnbd", "-m", "0750", "/var/lib/rnbd")
    for name, text in (("server", SERVER), ("client", CLIENT)):
        (debian.root / "tmp" / name).write_text(text.format(port=PORT))
        debian.run("install", "-m", "0640", "-g", "rnbd", f"/tmp/{name}", f"/etc/rnbd/{name}.yaml")


def a_disk_is_mapped(debian):
    """With what the units give the daemons: the server is rnbd, the client root with one capability."""
    server = debian.start(
        "STATE_DIRECTORY=/var/lib/rnbd", "setpriv", "--reuid=rnbd", "--regid=rnbd", "--clear-groups",
        "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "rnbd-server")
    client = debian.start("setpriv", "--bounding-set=-all,+sys_admin", "--inh-caps=-all",
                          "--no-new-privs", "rnbd-client")
    try:
        for what in ("--server", "--client"):
            wait_until(f"rnbdctl {what} answers", lambda what=what: debian.run(
                "rnbdctl", what, "status", ok=False).returncode == 0)
        owner = debian.run("stat", "-c", "%U", "/srv/rnbd/vol1.img").stdout.strip()
        check(owner == "rnbd", f"the server runs as {owner}")
        debian.run("rnbdctl", "map", "vol1", "from", "host-a")
        device = "nbd+unix:///vol1?socket=/run/rnbd/vol1.sock"
        wait_until("the volume is open", lambda: debian.run(
            "nbdinfo", "--size", device, ok=False).stdout.strip() == str(64 << 20))
        debian.run("dd", "if=/dev/urandom", "of=/tmp/in", "bs=1M", "count=64")
        debian.run("nbdcopy", "--flush", "/tmp/in", device)
        debian.run("nbdcopy", device, "/tmp/out")
        debian.run("cmp", "/tmp/in", "/tmp/out")
        debian.run("cmp", "/tmp/in", "/srv/rnbd/vol1.img")
        debian.run("rnbdctl", "unmap", "vol1")
    finally:
        ended = []
        for daemon in (client, server):
            daemon.send_signal(signal.SIGTERM)
            ended.append(daemon.wait(timeout=120))
    check(ended == [0, 0], f"client and server ended with {ended}")
    check((debian.root / "var/lib/rnbd/server.epochs").exists(), "the server noted its end")


if os.environ.get("RNBD_PACKAGES") != "1":
    skip("takes minutes and the network: RNBD_PACKAGES=1 runs it")
if os.geteuid() != 0:
    skip("needs root")
for program in ("debootstrap", "dpkg-buildpackage", "unshare"):
    if not shutil.which(program):
        skip(f"{program} is not installed: scripts/install-dependencies package")

with tempfile.TemporaryDirectory(prefix="rnbd-packages-") as folder:
    built = os.environ.get("RNBD_PACKAGES_FOLDER")
    if not built:
        built = BUILD / "packages"
        run(ROOT / "scripts/build-packages", built)
    files = packages(built)
    version = os.path.basename(files[0]).split("_")[1]
    debian = Debian(folder)
    debian.apt("update")
    debian.apt("install", "libnbd-bin", "nbdkit", "pkgconf", "systemd")
    debian.apt("install", *put(debian, files, "packages"))
    check(debian.versions() == dict.fromkeys(PACKAGES, version), f"installed: {debian.versions()}")
    what_was_installed(debian)
    configure(debian)
    a_disk_is_mapped(debian)
    print(f"installed {version}: a disk was mapped")

    kept = (debian.root / "etc/rnbd/server.yaml").read_text()
    later = put(debian, next_version(folder, files, version), "later")
    debian.apt("install", *later)
    check(debian.versions() == dict.fromkeys(PACKAGES, f"{version}+next"), "all were upgraded")
    what_was_installed(debian)
    a_disk_is_mapped(debian)
    check((debian.root / "etc/rnbd/server.yaml").read_text() == kept, "an upgrade keeps the file")
    print("upgraded: a disk was mapped")

    debian.apt("remove", *PACKAGES)
    check(not debian.versions(), f"still there: {debian.versions()}")
    check((debian.root / "etc/rnbd/server.yaml").read_text() == kept, "a removal keeps the file")
    check((debian.root / "var/lib/rnbd").exists(), "a removal keeps the state")
    # apt has forgotten those that came from files.
    debian.run("dpkg", "--purge", *PACKAGES)
    left = debian.run("find", "/", "-xdev", "(", "-path", "/proc", "-o", "-path", "/srv", "-o",
                      "-path", "/packages", "-o", "-path", "/later", ")", "-prune", "-o",
                      "-name", "*rnbd*", "-print").stdout.split()
    # Configurations are the administrator's; dpkg and systemd clear /run at the next boot.
    check(sorted(left) == ["/etc/rnbd", "/run/rnbd"], f"a purge leaves {left}")
    print("removed and purged: the configuration is left, and nothing else")
