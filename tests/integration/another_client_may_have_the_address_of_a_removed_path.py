"""An address belongs to a session of one client as long as a path of it leads there: then another client may have it."""
from configurations import *
from harness import *

TAKEN = "another rnbd-client on this machine has it"

with Lab() as lab:
    servers = [lab.server([export("vol1", lab.path(f"{name}.img"), "1MiB")], name) for name in ("one", "other")]
    first, second = (lab.client(server, {}, name) for server, name in zip(servers, ("first", "second")))
    spare = f"127.0.0.1:{free_port()}"

    def add(client, path):
        return client.ctl("paths", "add", "host-a", path, "--timeout", "0.001", ok=False)

    def taken():
        refused = add(second, spare)
        return refused.returncode == 5 and TAKEN in refused.stderr

    def free_for_the_second():
        """And of the first one again, that is, after this."""
        added = add(second, spare)
        check(added.returncode == 7, f"added, but nobody listens there: {added}")
        check(TAKEN in add(first, spare).stderr, "now the second one has it")
        second.ctl("paths", "remove", "host-a", spare)

    add(first, spare)
    check(taken(), "the first one has it")
    # Two paths lead there, from different addresses.
    add(first, f"127.0.0.3@{spare}")
    first.ctl("paths", "remove", "host-a", spare)
    check(taken(), "the first one has another path there")
    first.ctl("paths", "disconnect", "host-a", f"127.0.0.3@{spare}")
    check(taken(), "a path that is disconnected is the first one's, too")
    first.ctl("paths", "remove", "host-a", f"127.0.0.3@{spare}")
    free_for_the_second()

    # By the configuration.
    def paths(*addresses):
        with open(first.config_path) as text:
            written = json.load(text)
        written["sessions"][0]["paths"] = [{"tcp": one} for one in addresses]
        write_config(first, written)
        config(first, "apply")

    own = f"127.0.0.1:{servers[0].port}"
    paths(own, spare)
    check(taken(), "the first one has it again")
    paths(own)
    free_for_the_second()

    # One that was not added.
    nowhere = add(first, f"rdma:{spare}")
    if nowhere.returncode == 1:
        free_for_the_second()
    check(len(first.status()["sessions"][0]["paths"]) == 1, first.status()["sessions"])
