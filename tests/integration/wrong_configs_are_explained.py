"""--check-config and start-up name file, line, column, key, what was expected and the nearest key."""
import re

from harness import *


def write(lab, name, text):
    with open(lab.path(name), "w") as out:
        out.write(text)
    return lab.path(name)


def checked(program, text, lab):
    path = lab.path("config.yaml")
    with open(path, "w") as out:
        out.write(text)
    return run(os.path.join(BUILD, program, program), "--check-config", "--config", path, ok=False)


GOOD = """listen:
  - tcp: 127.0.0.1:0
exports:
  - name: vol1
    path: {path}
    size: 1MiB
    allow:
      - session: host-a
        access: rw
control: {control}
"""
with Lab() as lab:
    good = GOOD.format(path=lab.path("vol1.img"), control=lab.path("x.ctl"))
    check(checked("rnbd-server", good, lab).returncode == 0, "a good one passes")
    wrong = checked("rnbd-server", good.replace("acess", "access").replace("access: rw", "acces: rw"),
                    lab)
    check(wrong.returncode != 0, "a wrong key fails")
    check("config.yaml:9:9" in wrong.stderr, wrong.stderr)
    check("access" in wrong.stderr, "the nearest key is named")
    # Files of the folder beside it go with it, and errors say in which one they are.
    folder = lab.path("config.d")
    os.mkdir(folder)
    with open(os.path.join(folder, "20-more.yaml"), "w") as out:
        out.write("exports:\n  - name: vol2\n    storage: {kind: memory, size: 1MiB}\n")
    check(checked("rnbd-server", good, lab).returncode == 0, "a folder beside it passes")
    with open(os.path.join(folder, "30-twice.yaml"), "w") as out:
        out.write("exports:\n  - name: vol2\n    storage: {kind: memory, size: lots}\n")
    twice = checked("rnbd-server", good, lab)
    check(twice.returncode == 3, twice.stderr)
    check("30-twice.yaml:2:11: exports[0].name" in twice.stderr and
          "20-more.yaml:2" in twice.stderr, "both places: " + twice.stderr)
    check("30-twice.yaml:3:35: exports[0].storage.size" in twice.stderr, twice.stderr)
    os.unlink(os.path.join(folder, "30-twice.yaml"))
    # One that cannot be read hides the errors of no other, nor what is passed over.
    os.mkdir(os.path.join(folder, "40-folder.yaml"))
    with open(os.path.join(folder, "50-c.yml"), "w") as out:
        out.write("log: debug\n")
    hidden = checked("rnbd-server", good.replace("1MiB", "lots"), lab)
    check(hidden.returncode == 3 and "40-folder.yaml: cannot be read" in hidden.stderr and
          "exports[0].size: " in hidden.stderr and
          re.search("^warning: .*50-c.yml: not read: ", hidden.stderr, re.M), hidden.stderr)
    os.rmdir(os.path.join(folder, "40-folder.yaml"))
    os.unlink(os.path.join(folder, "50-c.yml"))
    # A file that is passed over for its name is told, by whoever reads.
    passed = os.path.join(folder, "30-more.yml")
    with open(passed, "w") as out:
        out.write("exports: nonsense\n")
    warned = checked("rnbd-server", good, lab)
    check(warned.returncode == 0 and warned.stderr.startswith(f"warning: {passed}: not read: "), warned.stderr)
    shutil.rmtree(folder)
    tab = checked("rnbd-server", good.replace("    allow:", "  \tallow:"), lab)
    check("config.yaml:7:3: found a tab in the indent" in tab.stderr, tab.stderr)
    one = "control: {control}\nlisten: [{{tcp: 127.0.0.1:0}}]\nexports: [{{name: a, storage: {kind: file, path: /x}}}]\n"
    one = one.replace("{{", "{").replace("}}", "}").replace("{control}", lab.path("x.ctl"))
    kind = checked("rnbd-server", one, lab)
    check(kind.stderr.count("\n") == 1 and "exports[0].storage.kind: " in kind.stderr, kind.stderr)
    for pattern in ("'*'", "host-*"):
        everybody = checked("rnbd-server", good.replace("host-a", pattern), lab)
        check(everybody.returncode == 3 and "config.yaml:8:18: exports[0].allow[0].session: " in everybody.stderr and
              "there are no patterns" in everybody.stderr, everybody.stderr)
    several = checked("rnbd-server", good.replace("1MiB", "lots").replace("127.0.0.1:0", "here"), lab)
    check(len(several.stderr.strip().splitlines()) >= 2, "every error is told: " + several.stderr)
    for program, words, complaint in (
            ("rnbd-server", ["--frob"], 'unknown option "--frob" (see --help)'),
            ("rnbd-client", ["--config", ""], "--config: found nothing, expected FILE (see --help)"),
            ("rnbd-client", ["x"], 'unexpected word "x" (see --help)')):
        wrong = run(os.path.join(BUILD, program, program), *words, ok=False)
        check(wrong.returncode == 2 and wrong.stderr == f"{program}: {complaint}\n", wrong.stderr)
    for example in ("rnbd-server", "rnbd-client"):
        path = os.path.join(os.path.dirname(__file__), "../../config", example + ".yaml")
        run(os.path.join(BUILD, example, example), "--check-config", "--config", path)
    # A pipe is read to its end, however slow its writer is.
    slow = run("bash", "-c", f"""exec {os.path.join(BUILD, "rnbd-server", "rnbd-server")} --check-config --config <(
        echo 'listen: [{{tcp: 127.0.0.1:0}}]'; sleep 0.3; echo 'exports: [{{name: a, path: relative}}]')""", ok=False)
    check(slow.returncode == 3 and "exports[0].path" in slow.stderr, slow.stderr)
    # Start-up problems: one line that says what to do about which thing.
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    taken = run(os.path.join(BUILD, "rnbd-server", "rnbd-server"), "--config", server.config_path,
                ok=False)
    check(taken.returncode != 0 and taken.stderr.count("\n") == 1 and
          f"another rnbd-server (pid {server.process.pid}) answers at {server.control}: end that one" in
          taken.stderr, taken.stderr)
    plain = lab.path("plain.ctl")
    open(plain, "w").close()
    no_socket = run(os.path.join(BUILD, "rnbd-server", "rnbd-server"), "--config",
                    write(lab, "plain.yaml", GOOD.format(path=lab.path("x.img"), control=plain)), ok=False)
    check(no_socket.returncode != 0 and
          f"control socket {plain}: found something that is no socket" in no_socket.stderr, no_socket.stderr)
    # One that a former life has left as another user, which a daemon without capabilities may not ask.
    if os.geteuid() == 0 and shutil.which("setpriv"):
        left = lab.path("left.ctl")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(left)
        os.chmod(left, 0o600)
        os.chown(left, 65534, 65534)
        for program, text in (
                ("rnbd-server", GOOD.format(path=lab.path("x.img"), control=left)),
                ("rnbd-client", f"""control: {lab.path("c.ctl")}
sessions: [{{name: host-a, paths: [{{tcp: "127.0.0.1:{server.port}"}}]}}]
devices: [{{name: d, session: host-a, volume: vol1, access: ro, nbd: "unix:{left}"}}]
""")):
            foreign = run("setpriv", "--bounding-set=-all", os.path.join(BUILD, program, program), "--config",
                          write(lab, "left.yaml", text), ok=False)
            check(foreign.returncode == 1 and
                  f"{left} belongs to another user (uid 65534)" in foreign.stderr, foreign.stderr)
    # Who has the file of an export, where /proc/locks tells it by the file's own number.
    second = Daemon(lab, "rnbd-server", "second", dict(
        listen=[{"tcp": "127.0.0.1:0"}], exports=[export("vol1", lab.path("vol1.img"))]))
    lab.daemons.append(second)
    second.start()
    reason = lambda: second.status()["exports"][0]["reason"]
    wait_until("it was looked for", lambda: "is being opened" not in reason())
    image = os.stat(lab.path("vol1.img"))
    with open("/proc/locks") as locks:
        told = f" {os.major(image.st_dev):02x}:{os.minor(image.st_dev):02x}:{image.st_ino} " in locks.read()
    holder = f"rnbd-server (pid {server.process.pid})" if told else "another program, a second server, "
    check(f"locked: by {holder}" in reason(), reason())
    check(second.status()["exports"][0]["next_attempt_s"] is not None, "when it is tried again")
    second.stop()
    # A file that was there keeps its size, and that is told.
    server.stop()
    server.config_with(lambda config: config["exports"][0].update(size="2MiB"))
    server.start()
    found = server.status()["exports"][0]
    check((found["size_bytes"], found["configured_size_bytes"]) == (1 << 20, 2 << 20), found)
    check("its configured size is 2097152" in server.log(), server.log())
    check("rnbdctl exports resize vol1 2097152 makes it so large" in server.ctl("exports", "vol1").stdout, "in words")
    server.config_with(lambda config: config["exports"][0].update(size="1MiB"))
    folder = lab.path("server.d")
    os.mkdir(folder)
    with open(os.path.join(folder, "x.yml"), "w") as out:
        out.write("log: debug\n")
    said = f"{folder}/x.yml: not read: "
    checked_there = server.ctl("config", "check")
    check(f"warning: {said}" in checked_there.stdout, checked_there.stdout)
    server.stop()
    server.start()
    check(said in server.log(), server.log())
    shutil.rmtree(folder)
    missing = run(os.path.join(BUILD, "rnbd-client", "rnbd-client"), "--config",
                  lab.path("absent.yaml"), ok=False)
    check(missing.returncode != 0 and "absent.yaml" in missing.stderr, missing.stderr)

    # Nobody can be told: the exit status still says what it was.
    with open("/dev/full", "w") as full:
        for program in ("rnbd-server", "rnbd-client"):
            path = os.path.join(BUILD, program, program)
            for words, status in (("--frob",), 2), (("--config", lab.path("absent.yaml")), 3), (("--version",), 1):
                found = subprocess.run([path, *words], stdout=full, stderr=full, stdin=subprocess.DEVNULL).returncode
                check(found == status, (program, words, found))
