"""Random links fail in random ways, one after the other and together, under verified I/O: no error.

RNBD_ROUNDS=1000 is the long run, of about ten minutes; it also shows that no memory is lost.
RNBD_SEED repeats a run's faults.
"""
from multipath_lab import *

ROUNDS = int(os.environ.get("RNBD_ROUNDS", "30"))
SEED = int(os.environ.get("RNBD_SEED", random.randrange(1 << 32)))
LINKS = 4
# A round breaks a link and heals one, as a rule not the same; so long each.
STEP_S = 0.25
# More than what a daemon has after a tenth of the run: on the heap, and in all. The latter includes
# the payload buffers of permits, which come into memory when the first large I/O uses them.
TOLERANCE_KIB = {"heap": 256, "resident": 32 * 1024}


def stop_for_a_while(process, dice):
    process.send_signal(signal.SIGSTOP)
    time.sleep(dice.uniform(0.05, 1.0))
    process.send_signal(signal.SIGCONT)


def memory_at_rest(lab):
    """What the daemons hold when of all the paths nothing but the client's requests is left."""
    for link in range(LINKS):
        if link not in lab.net.broken:
            lab.net.break_link(link, "link-down-client")
    wait_until("the server has no session", lambda: not lab.the_server.status()["sessions"])
    sizes = {f"{daemon.name}'s {kind}": of(daemon)
             for daemon in (lab.the_server, lab.the_client)
             for kind, of in (("heap", heap_kib), ("resident", resident_kib))}
    lab.net.heal_all()
    return sizes


print(f"RNBD_SEED={SEED} RNBD_ROUNDS={ROUNDS}", flush=True)
with MultipathLab() as lab:
    dice = random.Random(SEED)
    net = lab.network(links=LINKS, six=[3])
    server = lab.start_server([disk(lab, "numbered"), disk(lab, "fio", "256MiB")],
                              heartbeat=TUNED["heartbeat"])
    client = lab.start_client(["numbered", "fio"], **TUNED)
    load = lab.load("fio")
    judge = lab.judge("numbered", blocks=512, seed=SEED)
    done = {fault: 0 for fault in (*FAULTS, "server-stopped")}
    all_at_once = 0
    early = None
    requests, longest_ms = 0, 0.0
    for step in range(ROUNDS):
        # Now and then none is left.
        most = LINKS if dice.random() < 0.1 else LINKS - 1
        while len(net.broken) >= most:
            net.heal(dice.choice(sorted(net.broken)))
        fault = dice.choice(list(done))
        done[fault] += 1
        if fault == "server-stopped":
            stop_for_a_while(server.process, dice)
        else:
            net.break_link(dice.choice([l for l in range(LINKS) if l not in net.broken]), fault)
        all_at_once += len(net.broken) == LINKS
        time.sleep(dice.uniform(0, 2 * STEP_S))
        if net.broken and dice.random() < 0.8:
            net.heal(dice.choice(sorted(net.broken)))
            time.sleep(dice.uniform(0, 2 * STEP_S))
        figures = judge.mark()
        requests += figures["reads"] + figures["writes"]
        longest_ms = max(longest_ms, figures["longest_ms"])
        if step == max(3, ROUNDS // 10):
            early = memory_at_rest(lab)
        if step % 100 == 99:
            print(f"{step + 1} rounds, {requests} requests, resident: server "
                  f"{resident_kib(server)} KiB, client {resident_kib(client)} KiB", flush=True)
    late = memory_at_rest(lab)
    lab.wait_for_paths()
    judge.wait_for_progress()
    judge.finish()
    load.finish()
    lab.check_no_errors()
    print(f"{done}, all links at once {all_at_once} times; {requests} checked requests, "
          f"the longest took {longest_ms:.0f} ms")
    print(f"memory in KiB without paths, after a tenth: {early}, at the end: {late}")
    if ROUNDS >= 200:
        for name in late:
            check(late[name] <= early[name] + TOLERANCE_KIB[name.split()[-1]], f"{name} has grown")
