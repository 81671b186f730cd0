"""A daemon that gets no io_uring says what forbids it: a seccomp filter as containers have, or the limit of
locked memory of a user who is not root."""
import ctypes
import struct

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


nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
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
        line = said([*nobody, "prlimit", "--memlock=4096:4096"])
        check("ulimit -l" in line and "is 4 KiB" in line, line)
