"""`cpus` says where a daemon runs, with the kernel's threads that work for it."""
import threading

from harness import *

need("nbdcopy")


def places(daemon):
    """{name of a thread: where it may run}."""
    found = {}
    folder = f"/proc/{daemon.process.pid}/task"
    for task in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"{folder}/{task}/status") as status:
                fields = dict(line.split(":", 1) for line in status)
            found[fields["Name"].strip()] = fields["Cpus_allowed_list"].strip()
    return found


with Lab() as lab:
    mine = str(max(os.sched_getaffinity(0)))
    if len(os.sched_getaffinity(0)) == 1:
        skip("this process has one processor only")
    # Buffered writes of a new file go through the kernel's workers.
    server = lab.server([export("vol1", lab.path("vol1.img"), "64MiB", io="buffered")], cpus=mine)
    client = lab.client(server, {"vol1": {}}, cpus=f"{mine},1023")
    source = lab.random_file("in", 32 << 20)
    copying = threading.Thread(target=run, args=("nbdcopy", "--flush", source, lab.uri("vol1")))
    copying.start()
    seen = {}
    while copying.is_alive():
        seen.update(places(server))
        seen.update(places(client))
    copying.join()
    check({"rnbd-server", "rnbd-client"} <= set(seen), seen)
    check(set(seen.values()) == {mine}, f"all of them are on {mine}: {seen}")
    check(f"cpus: {mine},1023: of these there are only {mine}" in client.log(), client.log())
    check("cpus" not in server.log(), server.log())

    # Of more workers than processors each has one of them, and none is left out.
    processors = sorted(os.sched_getaffinity(0))
    several = lab.server([], name="several", cpus=",".join(map(str, processors)), workers=len(processors) + 1)

    def where_workers_are():
        found = []
        for task in sorted(os.listdir(f"/proc/{several.process.pid}/task"), key=int):
            with open(f"/proc/{several.process.pid}/task/{task}/comm") as name:
                # A sanitizer has a thread, too, named as the program.
                if int(task) == several.process.pid or name.read().startswith("rnbd-worker-"):
                    found.append(os.sched_getaffinity(int(task)))
        return found

    def each_has_one():
        where = where_workers_are()
        return (len(where) == len(processors) + 1 and all(len(one) == 1 for one in where) and
                set.union(*where) == set(processors))

    # A worker's thread takes its name and its processor when it begins.
    wait_until(f"each worker has one of {processors}, and none is left out: {where_workers_are()}", each_has_one)

    config = lab.path("nowhere.yaml")
    with open(config, "w") as out:
        json.dump({"listen": [{"tcp": "127.0.0.1:0"}], "exports": [], "cpus": "1022-1023",
                   "control": lab.path("nowhere.ctl")}, out)
    nowhere = run(os.path.join(BUILD, "rnbd-server/rnbd-server"), "--config", config, ok=False)
    check(nowhere.returncode == 1 and "none of these is there" in nowhere.stderr, nowhere)
