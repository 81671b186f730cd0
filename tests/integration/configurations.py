"""Configurations of running daemons: written, possibly over several files, and applied."""
import json
import os
import signal
import subprocess

from harness import BUILD, PATIENCE_S, check, wait_until


def write_config(daemon, config, pieces=()):
    """pieces: what goes into the folder beside the file, {name: part of a configuration}."""
    folder = folder_of(daemon)
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        if name not in dict(pieces):
            os.unlink(os.path.join(folder, name))
    for path, content in [(daemon.config_path, dict(config, control=daemon.control))] + [
            (os.path.join(folder, name), part) for name, part in dict(pieces).items()]:
        with open(path + ".new", "w") as out:
            json.dump(content, out, indent=1)
        os.rename(path + ".new", path)


def folder_of(daemon):
    return daemon.config_path.removesuffix(".yaml") + ".d"


def saved(daemon):
    """What --save has kept in the daemon's folder; None: nothing."""
    path = os.path.join(folder_of(daemon), "90-rnbdctl.yaml")
    if not os.path.exists(path):
        return None
    with open(path) as text:
        return json.loads("".join(line for line in text if not line.startswith("#")))


def config(daemon, *words, ok=True):
    """The document that rnbdctl config gives, and its exit status."""
    answer = daemon.ctl("--json", "config", *words, ok=False)
    document = json.loads(answer.stdout)
    check(not ok or answer.returncode == 0, document)
    return document.get("result", document), answer.returncode


def changes(document):
    """{"export vol1": "added", ...} of what is not as it was."""
    return {f"{one['object']} {one['name']}": one["change"] for one in document["objects"]
            if one["change"] != "unchanged" or one["drift"]}


def reload(daemon):
    """SIGHUP; what the daemon logs about it."""
    before = len(daemon.log())
    daemon.process.send_signal(signal.SIGHUP)

    def over():
        text = daemon.log()[before:]
        return text if any(word in text for word in (
            "configuration: applied", "configuration: refused", "not read again")) else None
    return wait_until(f"{daemon.name} has read its configuration again", over)


def begin(daemon, *words):
    """rnbdctl, which is not waited for."""
    return subprocess.Popen([os.path.join(BUILD, "rnbdctl", "rnbdctl"), "--socket", daemon.control, "--timeout",
                             f"{PATIENCE_S}s", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def succeeds(command):
    """What was begun."""
    text = command.communicate(timeout=PATIENCE_S)[0]
    check(command.returncode == 0, f"{command.returncode}: {text}")


def logged(daemon, words, since):
    """Waits for it. since: where the log ended before."""
    wait_until(words, lambda: words in daemon.log()[since:])
