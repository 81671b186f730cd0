"""Of a session of few or small requests the log says how long those of NBD clients may be, and that a client's were longer."""
from harness import *

need("nbdcopy", "nbdinfo")

with Lab() as lab:
    server = lab.server([export("vol1", lab.path("vol1.img"), "8MiB")], queue_depth=2)
    client = lab.client(server, {"vol1": {}})
    check("vol1: requests of more than 131072 bytes are refused" in client.log(), "the device says what its clients may ask for")
    check(json.loads(run("nbdinfo", "--json", lab.uri("vol1")).stdout)["exports"][0]["block_size_maximum"] == 131072,
          "and so do they hear")
    # It does not ask.
    copy = run("nbdcopy", lab.uri("vol1"), lab.path("copy.img"), ok=False)
    if copy.returncode != 0:
        wait_until("the log names the request", lambda: "refused a request of 262144 bytes" in client.log())
    check(run("nbdcopy", "--request-size=131072", lab.uri("vol1"), lab.path("copy.img"), ok=False).returncode == 0,
          "shorter requests are served")
    client.stop()
    server.stop()

    server = lab.server([export("vol1", lab.path("vol1.img"), "8MiB")], name="usual")
    client = lab.client(server, {"vol1": {}}, name="usual-client")
    check("are refused" not in client.log(), "nothing is said of the usual sizes")
