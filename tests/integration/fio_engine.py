"""fio with our engine."""
import json
import os
import signal
import subprocess

from harness import BUILD, built_with, check, need, run, skip

ENGINE = os.path.join(BUILD, "fio-engine/fio-rnbd.so")


def environment():
    """fio is not sanitized: it loads what is if the sanitizer is there first."""
    sanitizer = built_with("RNBD_SANITIZE")
    if not sanitizer:
        return dict(os.environ)
    if "thread" in sanitizer:
        skip("fio is not sanitized: it cannot load an engine under ThreadSanitizer")
    # What fio itself does not free is not ours.
    return dict(os.environ, LD_PRELOAD=built_with("RNBD_SANITIZER_LIBRARY"), ASAN_OPTIONS="detect_leaks=0")


def need_engine():
    need("fio")
    if not os.path.exists(ENGINE):
        skip("the engine was not built: scripts/fetch-fio-source, then cmake again")
    return environment()


def command(server, volume, *words, session="host-a"):
    return ["fio", "--name=job", f"--ioengine=external:{ENGINE}", f"--path=127.0.0.1:{server.port}",
            f"--session={session}", f"--volume={volume}", "--output-format=json",
            "--verify_state_save=0", *words]


def report(text):
    """fio's JSON, which may have messages before it."""
    return json.loads(text[text.index("{\n"):])


class Fio:
    """Runs fio in the folder of a lab, with the engine."""

    def __init__(self, lab):
        self.lab, self.folder, self.environment = lab, lab.folder, need_engine()

    def run(self, server, volume, *words, **options):
        """The report's jobs."""
        result = self.attempt(server, volume, *words, **options)
        check(result.returncode == 0, f"{words}: {result.stdout[-2000:]}{result.stderr[-2000:]}")
        jobs = report(result.stdout)["jobs"]
        check(all(job["error"] == 0 for job in jobs), f"{words}: {result.stdout[-2000:]}")
        return jobs

    def attempt(self, server, volume, *words, **options):
        return self.any(*command(server, volume, *words, **options))

    def any(self, *words, **more):
        return run(*words, ok=False, cwd=self.folder, env=dict(self.environment, **more))

    def start(self, server, volume, *words, **options):
        process = subprocess.Popen(command(server, volume, *words, **options), cwd=self.folder,
                                   env=self.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True)

        def end():
            if process.poll() is None:
                # With its jobs.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.lab.cleanups.append(end)
        return process
