"""`rnbdctl get`, `set` and `tree` have every attribute of kernel RNBD: texts, effects and errno."""
import attribute_scenario as scenario
from harness import *

need("nbdcopy", "nbdinfo", "nbdsh")

with Lab() as lab:
    world = scenario.World(lab)
    tree = world.client.ctl("tree", "/sys/class/rtrs-client").stdout
    check("-rw-r--r-- class/rtrs-client/host-a/add_path\n" in tree, tree)
    check("drwxr-xr-x class/rtrs-client/host-a/paths\n" in tree, tree)
    check(world.client.ctl("get", "/sys/block/rnbd0/rnbd/state").stdout == "open\n", "as cat")
    wrong = world.client.ctl("set", f"/sys/{world.path}/reconnect", "0", ok=False)
    check(wrong.returncode == 2 and "expected 1" in wrong.stderr, wrong)
    wrong = world.client.ctl("set", "/sys/block/rnbd0/rnbd/state", "closed", ok=False)
    check(wrong.returncode == 2 and "read-only attribute" in wrong.stderr, wrong)
    scenario.run_scenario(world, scenario.Rnbdctl(world.server, world.client))
