"""The commands of the tutorials do what these say, as they are written, with files of their own.

In a network of its own, too, where the kernel's NBD driver does not answer: RNBD_TUTORIAL_HERE=1 runs the
one that mounts in this machine's own (tests/vm does, in a guest).
"""
import re

from harness import *

need_root()
need("unshare", "ip", "nbdcopy", "nbdinfo")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
DOCS = os.path.join(ROOT, "docs")
HERE = os.environ.get("RNBD_TUTORIAL_HERE") == "1"
MOUNTS = "A file system on it"


def blocks(page):
    """[(section, language, the words before it, text)] in order."""
    found, section = [], ""
    with open(os.path.join(DOCS, page)) as text:
        for before, language, body in re.findall(r"(.*?)^```(\w*)\n(.*?)^```", text.read(),
                                                 re.MULTILINE | re.DOTALL):
            section = (re.findall(r"^## [0-9]*\. (.*)", before, re.MULTILINE) or [section])[-1]
            found.append((section, language, before, body))
    return found


def commands_of(page, first):
    """One shell script: files are written where the text says, each block's output has its number."""
    script, number = [], 0
    for section, language, before, body in blocks(page)[first:]:
        if section == MOUNTS and not HERE:
            continue
        if language == "yaml":
            name, = re.findall(r"[Ww]rite `([^`]+)`", before)
            script.append(f"cat >{name} <<'END OF FILE'\n{body}END OF FILE\n")
            continue
        check(language == "", f"{page}: a block of {language}")
        number += 1
        script.append(f"echo '=== {number}'\n")
        daemon = re.search(r"&& rnbd-(server|client)\n$", body)
        if daemon:
            # In terminals of their own; a reader looks before going on.
            body = (f'{{ {body.strip()}; }} >>daemons.log 2>&1 &\n'
                    f"until rnbdctl --{daemon[1]} list 2>&1 | grep -Ewq 'open|ready'; do sleep 0.2; done\n")
        script.append(body)
    return "".join(script)


def run_as_written(lab, page, first):
    """What each block has printed, from 1."""
    folder = lab.path(page)
    os.makedirs(f"{folder}/bin")
    for program in ("rnbd-server", "rnbd-client", "rnbdctl"):
        shutil.copy(os.path.join(BUILD, program, program), f"{folder}/bin")
    with open(f"{folder}/commands", "w") as out:
        out.write(commands_of(page, first))
    # /etc, /run, /srv and /tmp are the tutorial's own, and so is the network. What it needs of ours is
    # in the new /run, for our folder may be below /tmp.
    script = f"""
mkdir {folder}/all
mount -t tmpfs tmpfs {folder}/all || exit 77
mkdir {folder}/all/etc {folder}/all/work {folder}/all/rnbd
cp -r {folder}/bin {folder}/commands {folder}/all
mount -t overlay -o lowerdir=/etc,upperdir={folder}/all/etc,workdir={folder}/all/work overlay /etc || exit 77
mount --bind {folder}/all /run || exit 77
for where in /srv /tmp; do mount -t tmpfs tmpfs $where || exit 77; done
mkdir -p /etc/rnbd
rm -f /etc/rnbd/*.yaml
ip link set lo up
cd /tmp
PATH=/run/bin:$PATH exec bash /run/commands
"""
    # Its own PID namespace: nothing outlives it, whatever goes wrong.
    network = [] if HERE else ["--net"]
    process = subprocess.Popen(["unshare", "--mount-proc", *network, "--pid", "--fork", "--kill-child", "bash",
                                "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said, _ = process.communicate(timeout=1000 if HERE else 500)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        raise AssertionError(f"{page}: it does not end: {said[-6000:]}") from None
    if process.returncode == 77:
        skip(f"no mounts of its own here: {said}")
    print(f"--- {page}\n{said}")
    check(process.returncode == 0, f"{page} ended with {process.returncode}")
    return dict(enumerate(re.split(r"^=== \d+\n", said, flags=re.MULTILINE)))


def path_row(text, path):
    rows = [line.split() for line in text.splitlines() if path in line]
    return dict(zip(("session", "path", "state"), rows[-1][:3]))


def two_machines(lab):
    # The first block builds and installs.
    said = run_as_written(lab, "tutorial.md", 1)
    check("open" in said[3] and "export-size: 1073741824" in said[3], said[3])
    check(said[4].rstrip().endswith("the same"), said[4])


def two_paths(lab):
    said = run_as_written(lab, "tutorial-two-paths.md", 0)
    check(len(said) == (14 if HERE else 11), f"{len(said) - 1} blocks")
    for number in (3, 4, 7):
        for path in ("192.0.2.1:1235", "198.51.100.1:1235"):
            check(path_row(said[number], path)["state"] == "connected", said[number])
    check(path_row(said[5], "192.0.2.1:1235")["state"] != "connected" and
          path_row(said[5], "198.51.100.1:1235")["state"] == "connected", said[5])
    check("held: no path is up" in said[6] and "held for ever: no hold_time is set" in said[6], said[6])
    check("is closed" in said[8] and "is connected" in said[8] and "round-robin" in said[8], said[8])
    check("an error" not in "".join(said.values()) and "the copying has ended" in said[9], said[9])
    check("the same" in said[9], said[9])
    check(re.search(r"^  vol1 .* [MG]iB +0$", said[9], re.MULTILINE), f"no errors: {said[9]}")
    if not HERE:
        print(f"NOT TRIED: \"{MOUNTS}\" needs the kernel's NBD driver; RNBD_VM=1 tries it in a guest")
        return
    check(re.search(r"device +vol1 .*replaced", said[10]), said[10])
    check("written: 0" in said[12] and "the same" in said[12], said[12])


def start_udev(lab):
    need("modprobe", "mkfs.ext4")
    udevd = "/lib/systemd/systemd-udevd"
    if not os.path.exists(udevd):
        skip("udev is not installed: nobody makes /dev/rnbd")
    os.makedirs("/run/udev/rules.d", exist_ok=True)
    shutil.copy(os.path.join(ROOT, "systemd/60-rnbd.rules"), "/run/udev/rules.d/60-rnbd.rules")
    run(udevd, "--daemon")
    lab.cleanups.append(lambda: run("udevadm", "control", "--exit"))


with Lab() as lab:
    if HERE:
        start_udev(lab)
    else:
        two_machines(lab)
    two_paths(lab)
