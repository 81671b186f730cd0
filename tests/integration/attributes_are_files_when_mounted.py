"""rnbd-sysfs shows the same tree as files: never stale, and while daemons come and go."""
import errno

import attribute_scenario as scenario
from attribute_scenario import refused
from harness import *

need("nbdcopy", "nbdinfo", "nbdsh", "fusermount3")
PROGRAM = os.path.join(BUILD, "rnbd-sysfs", "rnbd-sysfs")
if not os.path.exists(PROGRAM):
    skip("rnbd-sysfs was not built: libfuse3 is missing")
if not os.access("/dev/fuse", os.W_OK):
    skip("no /dev/fuse to write to")


def mount(lab, world):
    root = lab.path("sys")
    os.mkdir(root)
    full = lab.path("full")
    os.mkdir(full)
    taken = os.path.join(full, "taken")
    with open(taken, "w") as out:
        out.write("content")
    for where, found in ((taken, "a file"), (full, "a directory with something in it")):
        refused = run(PROGRAM, where, ok=False)
        check(refused.returncode == 1 and
              f"{where}: found {found}, expected an empty directory" in refused.stderr, refused)
    log = open(lab.path("sysfs.log"), "w")
    process = subprocess.Popen([PROGRAM, "--foreground", "--server", world.server.control, "--client",
                                world.client.control, root], stderr=log, stdout=log)
    lab.cleanups.append(lambda: run("fusermount3", "-u", "-z", root, ok=False))
    lab.cleanups.append(process.wait)
    lab.cleanups.append(process.terminate)

    def mounted():
        if process.poll() is not None:
            with open(lab.path("sysfs.log")) as text:
                skip(f"cannot mount here: {text.read().strip()}")
        return os.path.ismount(root)
    wait_until("it is mounted", mounted)
    return root, process


def shell_scripts_work(world, root):
    policy = f"{root}/{world.session}/mpath_policy"
    run("sh", "-c", f"echo rr > {policy}")
    check(run("cat", policy).stdout == "round-robin (RR: 0)\n", "echo and cat")
    run("sh", "-c", f"echo mi > {policy}")
    wrong = run("sh", "-c", f"echo fastest > {policy}", ok=False)
    check(wrong.returncode != 0 and "echo" in wrong.stderr, wrong)
    states = run("sh", "-c", f"cat {root}/class/rtrs-client/*/paths/*/state").stdout
    check(states == "connected\n", states)
    found = run("find", root, "-name", "hca_name").stdout.split()
    check(len(found) == 2, found)
    check(os.stat(policy).st_size == 4096, "a page, as in sysfs")


def nothing_is_made_or_removed(world, root):
    folder = f"{root}/{world.session}"
    refused(lambda: open(f"{folder}/new", "w"), errno.EACCES)
    refused(lambda: os.mkdir(f"{folder}/new"), errno.EPERM)
    refused(lambda: os.unlink(f"{folder}/add_path"), errno.EPERM)
    refused(lambda: os.rename(f"{folder}/add_path", f"{folder}/x"), errno.EPERM)
    refused(lambda: open(f"{root}/{world.path}/state", "w"), errno.EACCES)


def an_open_file_is_never_stale(world, root):
    policy = f"{root}/{world.session}/mpath_policy"
    with open(policy, "rb", buffering=0) as file:
        check(file.read() == b"min-inflight (MI: 1)\n", "before")
        world.client.ctl("policy", "host-a", "round-robin")
        file.seek(0)
        check(file.read(5) == b"round" and file.read() == b"-robin (RR: 0)\n", "in pieces")
    world.client.ctl("policy", "host-a", "min-inflight")
    world.sys = scenario.Files(root)
    second = world.with_second_path()
    with open(f"{root}/{second}/state", "rb", buffering=0) as file:
        check(file.read() == b"connected\n", "a path")
        world.sys.set(second + "/remove_path", "1")
        file.seek(0)
        refused(file.read, errno.ENODEV)


def daemons_come_and_go(world, root):
    world.client.stop()
    refused(lambda: os.listdir(f"{root}/class/rtrs-client"), errno.ENOENT)
    check(os.listdir(f"{root}/block") == [], "no device")
    check(os.path.isdir(f"{root}/class/rtrs-server"), "the server is there")
    world.server.stop()
    check(sorted(os.listdir(root)) == ["block", "class"], os.listdir(root))
    check(os.listdir(f"{root}/class") == [], os.listdir(f"{root}/class"))
    world.server.start()
    world.client.start()
    wait_until("the device is open again", lambda: (
        os.path.exists(f"{root}/block/rnbd0/rnbd/state") and
        open(f"{root}/block/rnbd0/rnbd/state").read() == "open\n"))


def a_slow_write_holds_up_nobody(world, root):
    """map_device waits for a server that does not answer; reads go on."""
    world.server.process.send_signal(signal.SIGSTOP)
    try:
        text = f"sessname=host-b dest_port={world.server.port} path=ip:127.0.0.1 device_path=vol1"
        writer = subprocess.Popen(["sh", "-c", f"echo {text} > {root}/{world.map}"],
                                  stderr=subprocess.DEVNULL)
        wait_until("it is being mapped",
                   lambda: os.path.exists(f"{root}/class/rtrs-client/host-b"))
        check(writer.poll() is None, "it waits")
        with open(f"{root}/{world.session}/max_reconnect_attempts") as file:
            check(file.read() == "-1\n", "others read meanwhile")
        check(writer.wait() != 0, "it is refused in the end")
    finally:
        world.server.process.send_signal(signal.SIGCONT)


with Lab() as lab:
    world = scenario.World(lab)
    root, process = mount(lab, world)
    shell_scripts_work(world, root)
    nothing_is_made_or_removed(world, root)
    an_open_file_is_never_stale(world, root)
    daemons_come_and_go(world, root)
    a_slow_write_holds_up_nobody(world, root)
    wait_until("all is connected again",
               lambda: open(f"{root}/{world.path}/state").read() == "connected\n")
    scenario.run_scenario(world, scenario.Files(root))
    process.terminate()
    code = process.wait(timeout=PATIENCE_S)
    with open(lab.path("sysfs.log")) as said:
        check(code == 0, f"SIGTERM unmounts and ends it: {code}, {said.read()}")
    check(not os.path.ismount(root), "unmounted")
