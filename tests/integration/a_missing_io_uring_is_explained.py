"""A daemon that gets no io_uring says what forbids it: a seccomp filter as containers have, or the limit of
locked memory of a user who is not root. For that it waits a while: a process that was killed may just be giving
its memory back."""
import ctypes
import struct
import subprocess

from harness import *

need("prlimit", "setpriv")
IO_URING_SETUP = 425
libc = ctypes.CDLL(None, use_errno=True)


def without_io_uring():
    """io_uring_setup gives EPERM, as with the filters of container runtimes."""
    load_number, is_it, refuse, allow = 0x20, 0x15, 0x00050000 | 1, 0x7FFF0000
    program = struct.pack("HBBI" * 4, load_number, 0, 0, 0, is_it, 0, 1, IO_URING_SETUP,
                          0x06, 0, 0, refuse, 0x06, 0, 0, allow)
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
    no_new_privileges, set_seccomp, filtered = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(set_seccomp, filtered, header, 0, 0):
        os._exit(77)


def limited(lab, config, program, limit, name):
    """The command of such a daemon with its own control socket, under this limit."""
    path = lab.path(f"{program}.{name}.yaml")
    config = dict(config, control=lab.path(name))
    if "listen" in config:
        config["listen"] = [{"tcp": f"127.0.0.1:{free_port()}"}]
        config["exports"] = [dict(config["exports"][0], path=lab.path(f"{name}.img"))]
    with open(path, "w") as out:
        json.dump(config, out)
    return [*nobody(program, limit), "prlimit", f"--memlock={limit}:{limit}", os.path.join(BUILD, program, program), "--config", path]


def started(lab, config, program, limit, name):
    """The daemon, once it runs; None if the limit does not let it run at once."""
    for left in (lab.path(name), lab.path(f"{name}.img")):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(left)  # of another user
    with open(lab.path("log"), "w") as log:
        daemon = subprocess.Popen(limited(lab, config, program, limit, name), stderr=log)
    wait_until("it runs, or has too little memory",
               lambda: os.path.exists(lab.path(name)) or "no locked memory" in said_in(lab))
    if "no locked memory" not in said_in(lab):
        return daemon
    daemon.kill()
    daemon.wait()
    return None


def said_in(lab):
    with open(lab.path("log")) as log:
        return log.read()


def nobody(program, limit):
    """A user of this test alone, and of one attempt: what others of the same user have locked would count, too, and so would
    what a daemon that was just killed has not given back yet."""
    user = 1_000_000 + 64 * os.getpid() + limit.bit_length() + (32 if program == "rnbd-client" else 0)
    return ["setpriv", f"--reuid={user}", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []


with Lab() as lab:
    os.chmod(lab.folder, 0o777)
    configs = {
        "rnbd-server": {"listen": [{"tcp": f"127.0.0.1:{free_port()}"}],
                        "exports": [export("vol1", lab.path("vol1.img"), "1MiB")]},
        "rnbd-client": {"sessions": [{"name": "a", "paths": [{"tcp": "127.0.0.1:1"}]}]},
    }
    for program, config in configs.items():
        path = lab.path(f"{program}.yaml")
        with open(path, "w") as out:
            json.dump(dict(config, control=lab.path("control")), out)
        command = [os.path.join(BUILD, program, program), "--config", path]

        def said(prefix, **options):
            ended = run(*prefix, *command, ok=False, timeout=PATIENCE_S, **options)
            if ended.returncode == 77:
                skip("no seccomp filters here")
            check(ended.returncode == 1, ended)
            lines = [l for l in ended.stderr.splitlines() if "cannot set up io_uring: " in l]
            check(len(lines) == 1, ended)
            return lines[0]

        line = said([], preexec_fn=without_io_uring)
        check("seccomp" in line and "kernel.io_uring_disabled" in line, line)
        line = said([*nobody(program, 4096), "prlimit", "--memlock=4096:4096"])
        check("ulimit -l" in line and "is 4 KiB" in line, line)

        # A limit that is enough for one, and not for two.
        first, limit = None, 4 << 10
        while first is None:
            limit *= 2
            check(limit < 1 << 30, "some limit is enough for one")
            first = started(lab, config, program, limit, f"{program}.first")
        with open(lab.path("log"), "w") as log:
            second = subprocess.Popen(limited(lab, config, program, limit, f"{program}.second"), stderr=log)
        wait_until("it waits for memory", lambda: "no locked memory for io_uring yet" in said_in(lab))
        first.kill()
        first.wait()
        wait_until("it has started", lambda: os.path.exists(lab.path(f"{program}.second")) or second.poll() is not None)
        check("cannot set up" not in said_in(lab), said_in(lab))
        second.terminate()
        check(second.wait(PATIENCE_S) == 0, "it ended")
