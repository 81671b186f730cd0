"""fio's nbd engine with verification."""
import subprocess
import tempfile

from harness import check, run


def arguments(uri, seconds, block, size="256m"):
    return ["fio", "--ioengine=nbd", f"--uri={uri}", f"--size={size}",
            f"--bsrange={block}-1m", f"--blockalign={block}", "--iodepth=32",
            "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=256", "--verify_state_save=0",
            "--fsync=64", "--group_reporting", "--time_based", f"--runtime={seconds}",
            "--randrepeat=0", "--norandommap=0",
            "--name=mixed", "--rw=randrw", "--numjobs=3", "--offset_increment=25%", "--size=25%",
            "--name=trims", "--rw=randtrimwrite", "--offset=75%", "--size=25%", "--verify=0",
            "--numjobs=1"]


def fio_verify(uri, seconds, block=512):
    with tempfile.TemporaryDirectory(prefix="fio-") as folder:
        result = run(*arguments(uri, seconds, block), timeout=seconds + 600, cwd=folder, ok=False)
        text = result.stdout + result.stderr
        check(result.returncode == 0 and "err= 0" in text, text[-4000:])
        return text


def start_verify(uri, seconds, log_path, folder, block=512, prefix=()):
    log = open(log_path, "w")
    process = subprocess.Popen([*prefix, *arguments(uri, seconds, block)], stdout=log, stderr=log,
                               cwd=folder)
    log.close()
    return process
