"""fio's jobs run on volumes through our engine: data, trims, flushes, wrong words, a server that goes."""

import os
import re
import signal
import time

from fio_engine import ENGINE, Fio, command, report
from harness import Lab, check, export, wait_to_reach, wait_until

SIZE = 64 << 20
SECONDS = int(os.environ.get("RNBD_FIO_SECONDS", "1"))
EXAMPLES = os.path.join(os.path.dirname(__file__), "../../docs/examples/fio")
# What is being checked is not written meanwhile: serialize_overlap.
VERIFY = ["--verify=crc32c", "--verify_fatal=1", "--verify_backlog=256", "--serialize_overlap=1"]


def bytes_of(job, way):
    return job[way]["io_bytes"]


with Lab() as lab:
    fio = Fio(lab)
    backing = lab.path("vol")
    few = [{"session": f"host-{i}", "access": "ro"} for i in range(1, 4)]
    wide = dict(export("vol", backing, "64MiB", block_size=512))
    wide["allow"] = wide["allow"] + few
    server = lab.server([wide, export("ro", lab.random_file("ro", 8 << 20), access="ro")])

    # --- Data: mixed sizes; larger than a request, so cut; with buffers of ours and of fio's; depth 1.
    for words in (["--bsrange=512-64k", "--blockalign=512", "--iodepth=32"],
                  ["--bsrange=512-64k", "--blockalign=512", "--iodepth=32", "--registered=0"],
                  ["--bsrange=4k-1m", "--blockalign=4k", "--iodepth=8"],
                  ["--bs=4k", "--iodepth=1", "--sync=1"],
                  ["--bs=4k", "--iodepth=64", "--iodepth_batch=16", "--iodepth_batch_complete_max=16",
                   "--iodepth_low=16", "--batch=4"],
                  # More under way than the session has permits.
                  ["--bs=4k", "--iodepth=2048"],
                  # What waits between two requests keeps none of them.
                  ["--bs=16k", "--iodepth=8", "--rate_iops=2000,2000"]):
        job, = fio.run(server, "vol", "--rw=randrw", "--fsync=16", *VERIFY, "--size=100%",
                       "--time_based", f"--runtime={SECONDS}", *words)
        check(bytes_of(job, "read") > 0 and bytes_of(job, "write") > 0, f"{words}: {job}")
        check(job["read"]["slat_ns"]["N"] > 0, f"{words}: times to submission: {job}")
        check(job["sync"]["total_ios"] > 0, f"{words}: flushes: {job}")
    check(os.path.getsize(backing) == SIZE, "the volume's size is fio's 100%")

    # --- What fio wrote is in the storage; what it trims leaves it.
    fio.run(server, "vol", "--rw=write", "--bs=64k", "--iodepth=16", "--size=100%", "--end_fsync=1",
            "--buffer_pattern=0x52")
    with open(backing, "rb") as storage:
        check(storage.read() == b"\x52" * SIZE, "what was written is in the storage")
    before = os.stat(backing).st_blocks
    job, = fio.run(server, "vol", "--rw=trim", "--bs=1m", "--iodepth=8", "--size=50%", "--sync=1")
    check(bytes_of(job, "trim") == SIZE // 2, f"half of it was trimmed: {job}")
    check(os.stat(backing).st_blocks <= before * 6 // 10, "trimmed space is given back")

    # --- Several jobs: sessions of their own, and one that they share.
    jobs = fio.run(server, "vol", "--rw=randread", "--bs=4k", "--iodepth=16", "--size=8m",
                   "--numjobs=3", session="host-%j")
    check(len(jobs) == 3, f"each job had a session: {jobs}")
    jobs = fio.run(server, "vol", "--rw=randrw", "--bsrange=4k-64k", "--blockalign=4k", "--iodepth=16",
                   "--thread", "--shared=1", "--numjobs=4", "--size=25%", "--offset_increment=25%",
                   *VERIFY)
    check(len(jobs) == 4 and all(bytes_of(job, "write") > 0 for job in jobs), f"they share: {jobs}")
    # Those that ask for the size themselves have their sessions by then.
    fio.run(server, "vol", "--rw=randrw", "--bs=4k", "--iodepth=16", "--create_serialize=0", "--size=8m", *VERIFY)
    jobs = fio.run(server, "vol", "--rw=randread", "--bs=4k", "--thread", "--shared=1", "--numjobs=3", "--create_serialize=0",
                   "--size=25%", "--io_size=1m")
    check(len(jobs) == 3 and all(bytes_of(job, "read") > 0 for job in jobs), f"each has the size: {jobs}")
    # One that has nobody to share with.
    fio.run(server, "vol", "--rw=randrw", "--bs=4k", "--iodepth=16", "--thread", "--shared=1", "--size=8m", *VERIFY)
    wrong = fio.attempt(server, "vol", "--rw=read", "--numjobs=2", "--time_based", "--runtime=3")
    check(wrong.returncode != 0 and "thread=1 and shared=1" in wrong.stderr + wrong.stdout, f"explained: {wrong}")
    wrong = fio.attempt(server, "vol", "--rw=read", "--numjobs=2", "--shared=1")
    check(wrong.returncode != 0 and "thread=1" in wrong.stderr + wrong.stdout, f"explained: {wrong}")

    sharing = ["--rw=read", "--bs=4k", "--size=8m", "--time_based", "--runtime=3", "--thread", "--shared=1"]
    wrong = fio.attempt(server, "vol", *sharing, "--name=other", *command(server, "ro", *sharing)[2:])
    text = wrong.stderr + wrong.stdout
    check(wrong.returncode != 0 and ": jobs on another volume have this session" in text, f"explained: {wrong.stderr}")
    check("thread=1 and shared=1" not in text, f"what is set is not advised: {wrong}")

    # --- A log that is replayed: fio asks for no answers after its last line.
    replayed = lab.path("replayed")
    with open(replayed, "w") as log:
        log.write("fio version 2 iolog\nrnbd add\nrnbd open\n" + "".join(
            f"rnbd {'write' if i % 2 else 'read'} {i << 20} {1 << 20}\n" for i in range(48)) + "rnbd close\n")
    # Not numjobs=2: with such logs fio 3.33 itself crashes then.
    sharing = ["--thread", "--shared=1", "--access=rw"]
    other = ["--name=other", *command(server, "vol", "--rw=read", "--bs=4k", "--size=1m", *sharing)[2:]]
    for words in ([], [*sharing, *other]):
        fio.run(server, "vol", "--rw=write", "--bs=1m", "--size=100%", "--buffer_pattern=0x52")
        result = fio.attempt(server, "vol", f"--read_iolog={replayed}", "--iodepth=64", "--buffer_pattern=0x61",
                             "--end_fsync=1", *words)
        check(result.returncode == 0, f"{words}: {result}")
        with open(backing, "rb") as storage:
            for i in range(48):
                part = storage.read(1 << 20)
                check(part == (b"\x61" if i % 2 else b"\x52") * len(part), f"{words}: MiB {i} of it")

    # --- One with times, in microseconds: the requests come as far from each other as they did then.
    timed, gap_ms, gaps = lab.path("timed"), 100, 5
    with open(timed, "w") as log:
        log.write("fio version 3 iolog\n1 rnbd add\n1 rnbd open\n" + "".join(
            f"{1 + i * gap_ms * 1000} rnbd read {i << 12} 4096\n" for i in range(gaps + 1)) + f"{1 + gaps * gap_ms * 1000} rnbd close\n")
    (job,) = fio.run(server, "vol", f"--read_iolog={timed}", "--iodepth=8")
    check(job["read"]["total_ios"] == gaps + 1, f"all of it: {job}")
    check(job["job_runtime"] >= gaps * gap_ms, f"no faster than it was: {job['job_runtime']} ms")

    # --- What is wrong is explained.
    def refused(what, *words, volume="vol", rw="read", **options):
        result = fio.attempt(server, volume, f"--rw={rw}", "--bs=4k", "--size=1m", *words, **options)
        text = result.stdout + result.stderr
        check(result.returncode != 0 and what in text, f"{words}: {result.returncode}: {text}")
        check("session: \n" not in text, f"no line without a reason: {text}")

    fio.run(server, "ro", "--rw=read", "--bs=64k", "--size=100%")
    # Of memory that fio does not get it says so, and calls the engine all the same.
    with open("/proc/sys/vm/nr_hugepages") as pages:
        if int(pages.read()) == 0:
            refused("Cannot allocate memory", "--mem=mmaphuge", "--thread=0")
            refused("Cannot allocate memory", "--mem=mmaphuge", "--thread=1")
    refused("no such export", volume="no-such")
    refused("Permission denied", session="stranger")
    refused("Permission denied", volume="ro", rw="write")
    refused("expected a duration", "--settings=hold-time=5")
    refused("expected one of", "--settings=colour=red")
    refused("expected [standby:]", "--path=nowhere")
    refused("unrecognized option", "--colour=red")
    refused("not whole blocks of 512", "--bs=1000")
    refused("one volume", "--nrfiles=2")
    refused("not in a cache of this machine", "--pre_read=1")
    refused("settings: thread: shared= says it", "--settings=hold-time=5s,thread=on")
    refused("settings: name: session= says it", "--settings=name=host-b")
    refused("expected 1 to 86400", "--open_seconds=-1")
    refused("expected 1 to 86400", "--open_seconds=0")
    for batch in (-1, 0):
        refused("expected 1 to 65535", f"--batch={batch}")
    refused("max value out of range", "--batch=65536")
    refused("can't be used with offloaded submit", "--io_submit_mode=offload")
    refused("RDMA in processes: fio's thread=1 is needed", "--path=rdma:192.0.2.1:1235")
    refused("not whole blocks of 512", "--bs=1000", "--create_serialize=0")
    for serialized in (0, 1):
        missing = fio.any("fio", "--name=job", f"--ioengine=external:{ENGINE}", "--rw=read", "--size=1m",
                          f"--create_serialize={serialized}")
        check(missing.returncode != 0 and "missing: path= session= volume=" in missing.stderr, f"{missing}")

    # --- The examples run as they are, for a shorter time.
    variables = {"RNBD_ENGINE": os.path.abspath(ENGINE), "RNBD_PATH": f"127.0.0.1:{server.port}",
                 "RNBD_SESSION": "host-a", "RNBD_VOLUME": "vol"}
    for name in sorted(os.listdir(EXAMPLES)):
        with open(os.path.join(EXAMPLES, name)) as example, open(lab.path(name), "w") as shorter:
            shorter.write(re.sub(r"^runtime=.*$", f"runtime={SECONDS}", example.read(), flags=re.MULTILINE))
        result = fio.any("fio", "--output-format=json", lab.path(name), **variables)
        check(result.returncode == 0, f"{name}: {result.stdout[-2000:]}{result.stderr[-2000:]}")
        check(report(result.stdout)["jobs"][0]["error"] == 0, name)

    # --- A server that is killed and comes back.
    def working():
        return any(session["in_flight"] > 4 for session in server.status()["sessions"])

    def written():
        return sum(session["writes"] for session in server.status()["sessions"])

    def write_on(count):
        """So many from now on: what was written before is read and checked by then."""
        wait_to_reach(f"fio writes {count} times", written() + count, written)

    # What is killed is heard of at once; who is only slow is not given up.
    patient = "--settings=heartbeat-interval=1s,heartbeat-timeout=30s"
    halves = ["--thread", "--shared=1", "--numjobs=2", "--size=50%", "--offset_increment=50%"]
    for words in ([], halves):
        load = fio.start(server, "vol", "--rw=randrw", "--bs=4k", "--iodepth=16", "--size=100%", patient,
                         *VERIFY, "--time_based", "--runtime=3600", *words)
        wait_until("fio reads and writes", working)
        for _ in range(2):
            server.kill()
            server.start()
            wait_until("it does again", working)
        write_on(2000)
        load.send_signal(signal.SIGINT)
        text = load.communicate(timeout=600)[0]
        jobs = report(text)["jobs"]
        check(all(job["error"] == 0 and bytes_of(job, "write") > 0 for job in jobs), text[-2000:])

    # --- A server that does not come back: requests fail when fio is told to end, or by hold-time.
    for words in ([], ["--thread", "--shared=1", "--numjobs=2"]):
        load = fio.start(server, "vol", "--rw=randread", "--bs=4k", "--iodepth=16", "--size=100%", patient,
                         "--time_based", "--runtime=3600", *words)
        wait_until("fio reads and writes", working)
        server.kill()
        load.send_signal(signal.SIGINT)
        text = load.communicate(timeout=600)[0]
        check("terminating on signal" in text and "stuck" not in text, text[-2000:])
        server.start()
    load = fio.start(server, "vol", "--rw=randread", "--bs=4k", "--iodepth=16", "--size=100%",
                     "--settings=hold-time=200ms", "--time_based", "--runtime=3600")
    wait_until("fio reads and writes", working)
    server.kill()
    text = load.communicate(timeout=600)[0]
    check(load.returncode != 0 and "connection abort" in text.lower(), text[-2000:])
    server.start()

    # --- An export that does not come back, at a server that stays.
    for words in ([], ["--thread", "--shared=1", "--numjobs=2"]):
        load = fio.start(server, "ro", "--rw=randread", "--bs=4k", "--iodepth=16", "--size=100%",
                         "--time_based", "--runtime=3600", *words)
        wait_until("fio reads", working)
        server.ctl("exports", "remove", "ro", "--force")
        load.send_signal(signal.SIGINT)
        text = load.communicate(timeout=600)[0]
        check("terminating on signal" in text and "stuck" not in text, text[-2000:])
        server.ctl("exports", "add", "ro", lab.path("ro"), "--allow", "host-a=ro")

    # --- Storage that hangs, at a server that stays.
    gate = lab.path("gate")
    server.config_with(lambda config: config["exports"].append({
        "name": "gated", "allow": [{"session": "host-a", "access": "rw"}],
        "storage": {"kind": "delay", "gate": gate, "gate_operations": "all", "of": {"kind": "memory", "size": "8MiB"}}}))
    server.ctl("config", "apply")
    for words in ([], ["--thread", "--shared=1", "--numjobs=2"]):
        load = fio.start(server, "gated", "--rw=randread", "--bs=4k", "--iodepth=16", "--size=100%",
                         "--settings=close-time=1s", "--time_based", "--runtime=3600", *words)
        wait_until("fio reads", working)
        open(gate, "w").close()
        load.send_signal(signal.SIGINT)
        text = load.communicate(timeout=600)[0]
        check("terminating on signal" in text and "stuck" not in text, text[-2000:])
        os.unlink(gate)
        wait_until("nothing is under way", lambda: not any(
            session["in_flight"] for session in server.status()["sessions"]))

    # --- A log that is over before anything was answered: its requests are waited for, and their errors told.
    slow = lab.path("slow")
    server.config_with(lambda config: config["exports"].append({
        "name": "slow", "allow": [{"session": "host-a", "access": "rw"}],
        "storage": {"kind": "delay", "gate": gate, "gate_operations": "all",
                    "of": {"kind": "path", "path": slow, "size": "8MiB"}}}))
    server.ctl("config", "apply")
    short = lab.path("short")
    with open(short, "w") as log:
        log.write("fio version 2 iolog\nrnbd add\nrnbd open\n" + "".join(
            f"rnbd write {i << 20} {1 << 20}\n" for i in range(8)) + "rnbd close\n")

    def waits():
        return any(session["in_flight"] for session in server.status()["sessions"])

    for words in ([], [*sharing, "--name=other", *command(server, "slow", "--rw=read", "--bs=4k", "--size=1m", *sharing)[2:]]):
        with open(slow, "r+b") as storage:
            storage.write(bytes(8 << 20))
        open(gate, "w").close()
        load = fio.start(server, "slow", f"--read_iolog={short}", "--iodepth=64", "--buffer_pattern=0x61",
                         "--settings=close-time=1s", *words)
        wait_until("its requests wait", waits)
        time.sleep(8)  # longer than an engine that was told to end waits for an answer
        check(load.poll() is None, "it waits")
        os.unlink(gate)
        text = load.communicate(timeout=600)[0]
        check(load.returncode == 0, text[-2000:])
        with open(slow, "rb") as storage:
            check(storage.read() == b"\x61" * (8 << 20), f"{words}: all of it was written: {text}")
    for words in ([], ["--thread"]):
        open(gate, "w").close()
        load = fio.start(server, "slow", f"--read_iolog={short}", "--iodepth=64", "--settings=hold-time=200ms", *words)
        wait_until("its requests wait", waits)
        server.kill()
        text = load.communicate(timeout=600)[0]
        check(load.returncode != 0 and "connection abort" in text.lower(), text[-2000:])
        os.unlink(gate)
        server.start()
    open(gate, "w").close()
    load = fio.start(server, "slow", f"--read_iolog={short}", "--iodepth=64", "--settings=close-time=1s")
    wait_until("its requests wait", waits)

    def ended():
        load.send_signal(signal.SIGINT)  # again, as its user would: one that came with the log's end is not seen
        time.sleep(1)
        return load.poll() is not None

    wait_until("it ends when it is told to", ended)
    text = load.communicate(timeout=600)[0]
    check("terminating on signal" in text and "stuck" not in text, text[-2000:])
    os.unlink(gate)

    # --- A start that waits ends, too.
    for _ in range(10):
        load = fio.start(server, "vol", "--rw=read", "--open_seconds=86400", "--path=127.0.0.5:1")
        wait_until("it tries to connect", lambda: len(os.listdir(f"/proc/{load.pid}/fd")) > 8)
        load.send_signal(signal.SIGINT)
        text = load.communicate(timeout=600)[0]
        check(load.returncode != 0, text[-2000:])
        if "Connection refused" in text:
            break  # else it was told to end before its first attempt had an answer
    check("Connection refused" in text, text[-2000:])
