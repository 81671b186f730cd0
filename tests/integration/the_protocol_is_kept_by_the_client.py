"""The conformance tool finds no statement of the checklist that our client breaks, over TCP."""

import os
import sys

from harness import BUILD, check, need, run

need("nbdsh")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
# Times that a machine which is busy with something else keeps, too.
os.environ.update(RNBD_BUILD=BUILD, CONFORMANCE_INTERVAL="500ms", CONFORMANCE_TIMEOUT="8s", CONFORMANCE_UP_SECONDS="120")
result = run(os.path.join(BUILD, "tests/conformance/conformance"), "client",
             os.path.join(ROOT, "conformance/drive_rnbd_client"), "--extensions", "--depth-min", 2,
             "--heartbeat-interval", 500, "--heartbeat-timeout", 8000, *sys.argv[1:], ok=False)
print(result.stdout if result.returncode else result.stdout.splitlines()[-1])
check(result.returncode == 0, f"exit status {result.returncode}\n{result.stderr}")
