"""Where each worker of a server is held on a processor, a connection is carried by the one where its packets arrive,
whoever of two clients comes first."""
from harness import *

need("nbdcopy")
need_root()  # to choose processors freely


def completions(server):
    return [worker["completions"] for worker in server.status()["workers"]]


with Lab() as lab:
    processors = sorted(os.sched_getaffinity(0))[:2]
    if len(processors) < 2:
        skip("this process has one processor only")
    data = lab.random_file("data", 64 << 20)
    for first in (0, 1):
        names = [f"host-{first}{number}" for number in (0, 1)]
        server = lab.server(
            [{"name": name, "storage": {"kind": "memory", "size": "64MiB"},
              "allow": [{"session": name, "access": "rw"}]} for name in names],
            name=f"server-{first}", workers=2, cpus=",".join(map(str, processors)))
        for number in (first, 1 - first):
            lab.client(server, {names[number]: {}}, name=f"client-{first}{number}", session=names[number],
                       cpus=str(processors[number]), workers=1)
        for number in (0, 1):
            before = completions(server)
            run("nbdcopy", data, lab.uri(names[number], f"client-{first}{number}"))
            grown = [now - was for now, was in zip(completions(server), before)]
            check(grown[number] > 5 * grown[1 - number],
                  f"of the client on processor {processors[number]}, which came "
                  f"{'first' if number == first else 'second'}: {grown}")
        server.stop()
