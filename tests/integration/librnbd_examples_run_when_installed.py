"""librnbd can be installed, found by pkg-config, and used: the examples compile and run with it."""

import os

from harness import BUILD, Lab, built_with, check, export, need, run

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "../../docs/examples/librnbd")
SIZE = 8 << 20

need("pkg-config", "cmake", "readelf")
with Lab() as lab:
    prefix = lab.path("installed")
    run("cmake", "--install", BUILD, "--prefix", prefix, "--component", "librnbd")
    libraries = [os.path.join(folder, "librnbd.so") for folder, _, files in os.walk(prefix)
                 if "librnbd.so" in files]
    check(len(libraries) == 1, f"librnbd.so is installed once: {libraries}")
    folder = os.path.dirname(libraries[0])
    env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(folder, "pkgconfig"), LD_LIBRARY_PATH=folder)

    about = run("readelf", "-d", libraries[0]).stdout
    check("Library soname: [librnbd.so.0]" in about, "the library has its SONAME")
    symbols = run("readelf", "-W", "--dyn-syms", libraries[0]).stdout
    exported = {word.split("@")[0] for word in symbols.split() if "@@RNBD_" in word}
    mine = [line for line in symbols.splitlines() if " UND " not in line and " GLOBAL " in line]
    check(all("@@RNBD_" in line or " ABS " in line for line in mine),
          f"nothing is exported without a version: {mine}")
    check("rnbd_session_new" in exported, f"the functions are exported: {exported}")

    flags = run("pkg-config", "--cflags", "--libs", "librnbd", env=env).stdout.split()
    check(any(flag.startswith("-I") and prefix in flag for flag in flags),
          f"pkg-config leads to the installed header: {flags}")
    # A sanitized librnbd is used by what its own compiler made.
    compiler = built_with("CMAKE_C_COMPILER") if built_with("RNBD_SANITIZE") else "cc"
    flags += filter(None, built_with("RNBD_SANITIZER_FLAGS").split(";"))

    image = lab.random_file("image", SIZE)
    server = lab.server([export("vol", image), export("large", lab.path("large.img"), SIZE, block_size=4096)])

    def example(name, volume, output=None):
        program = lab.path(name)
        run(compiler, "-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
            os.path.join(EXAMPLES, name + ".c"), *flags, "-pthread", "-o", program, env=env)
        return use(program, volume, output)

    def use(program, volume, output=None, ok=True, session="host-a"):
        words = [program, session, f"127.0.0.1:{server.port}", volume]
        if output is not None:
            words = ["sh", "-c", '"$@" > ' + output, "sh"] + words
        return run(*words, env=env, ok=ok)

    said = example("1-write-and-read", "vol").stdout
    check(said == "kept at the server\n", f"the line came back: {said!r}")
    check(open(image, "rb").read(18) == b"kept at the server", "the line is in the storage")
    use(lab.path("1-write-and-read"), "large")
    refused = use(lab.path("1-write-and-read"), "no-such", ok=False)
    check(refused.returncode == 1 and "No such file" in refused.stderr,
          f"a wrong volume is explained: {refused}")

    copied = example("2-many-at-once", "vol", output=lab.path("copy"))
    check("path 127.0.0.1" in copied.stderr, f"events are told: {copied.stderr!r}")
    run("cmp", image, lab.path("copy"))
    full = use(lab.path("2-many-at-once"), "vol", output="/dev/full", ok=False)
    check(full.returncode == 1 and "No space left" in full.stderr, f"a full disk is told: {full}")

    said = example("3-from-many-threads", "vol").stdout
    check(said == "every thread read what it wrote\n", f"it says so: {said!r}")

    for name in ("1-write-and-read", "2-many-at-once", "3-from-many-threads"):
        refused = use(lab.path(name), "vol", session="no name!", ok=False)
        check(refused.returncode == 1 and 'found "no name!", expected' in refused.stderr,
              f"a wrong name is explained: {refused}")
