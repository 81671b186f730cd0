"""Completion in bash and zsh: a name that a daemon tells, whatever it is, becomes one word and no command."""
import pathlib
import pty
import select

from harness import *

RNBDCTL = os.path.abspath(os.path.join(BUILD, "rnbdctl"))
# A peer chooses its session's name, and who may add an export chooses that one's.
ODD = "$(touch${IFS}HERE);`id`&[a-z]*\\'"
AT_END = "@@@"


def typed(shell, keys, folder):
    """The words that rnbdctl was called with when these keys were pressed, and Enter."""
    (script := pathlib.Path(folder, "bin")).mkdir(exist_ok=True)
    seen = pathlib.Path(folder, "seen")
    seen.unlink(missing_ok=True)
    own = script / "rnbdctl"
    # complete and completion are the program's; anything else is written down.
    own.write_text(f"""#!/bin/sh
case $1 in complete|completion) exec {RNBDCTL}/rnbdctl "$@" ;; esac
printf '%s\\n' "$@" {AT_END} >{seen}
""")
    own.chmod(0o755)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ.update(PATH=f"{script}:{os.environ['PATH']}", TERM="dumb", PS1="ready> ", HISTFILE="/dev/null")
        os.execvp(shell[0], shell)
    screen = b""

    def read_until(done):
        nonlocal screen
        end = time.monotonic() + 60
        while not done() and time.monotonic() < end:
            if select.select([terminal], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    screen += os.read(terminal, 65536)

    read_until(lambda: b"ready> " in screen)
    setup = b"" if shell[0] == "bash" else b"autoload -U compinit; compinit -u -D; "
    os.write(terminal, setup + f". <(rnbdctl completion {shell[0]}); PS1='set'up'> '\n".encode())
    read_until(lambda: b"setup> " in screen)
    os.write(terminal, keys.encode() + b"\t\n")
    read_until(lambda: seen.exists() and AT_END in seen.read_text())
    os.write(terminal, b"exit\n")
    read_until(lambda: os.waitpid(process, os.WNOHANG)[0] != 0)
    os.close(terminal)
    check(seen.exists(), f"{shell[0]} called nothing: {screen!r}")
    return seen.read_text().splitlines()[:-1]


def completes(shell, keys, folder, expected):
    """rnbdctl complete waits a second for the daemon, in which a busy machine may not have asked it: then the keys are pressed again."""
    for _ in range(5):
        found = typed(shell, keys, folder)
        if found == expected:
            return
    check(False, f"{shell[0]}: {found}")


with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "1MiB")])
    server.ctl("exports", "add", ODD, lab.path("odd.img"), "--size", "1MiB")
    server.ctl("exports", "add", f"x{ODD}", lab.path("odder.img"), "--size", "1MiB")
    added = server.ctl("exports", "add", "plain-name", lab.path("plain.img"), "--size", "1MiB")
    check("no session may open it" in added.stdout, added)
    folder = lab.path("here")
    os.mkdir(folder)
    # What a pattern would find.
    pathlib.Path(folder, "a").touch()
    tried = 0
    for shell in (["bash", "--norc", "--noprofile", "-i"], ["zsh", "-f", "-i"]):
        if not shutil.which(shell[0]):
            print(f"NOT TRIED: {shell[0]} is not installed")
            continue
        start = ["--socket", server.control, "exports", "resize"]
        line = " ".join(["rnbdctl", *start])
        completes(shell, f"{line} pl", folder, [*start, "plain-name"])
        for begun, name in (("x", f"x{ODD}"), ("\\$", ODD), ("\\$\\(touch\\$", ODD)):
            completes(shell, f"{line} {begun}", folder, [*start, name])
        completes(shell, "rnbdctl expo", folder, ["exports"])
        check(sorted(os.listdir(folder)) == ["a", "bin", "seen"], f"{shell[0]}: {os.listdir(folder)}")
        tried += 1
    if not tried:
        skip("neither bash nor zsh is installed")
