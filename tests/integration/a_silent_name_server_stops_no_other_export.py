"""While the name of an NBD server is looked up at a name server that does not answer, other exports do."""
from harness import *

need("unshare")
need_root()
if not os.path.exists("/etc/resolv.conf"):
    skip("there is no /etc/resolv.conf")

RESOLVER = "192.0.2.1"
INSIDE = "RNBD_TEST_INSIDE"

if INSIDE not in os.environ:
    # A network and a /etc/resolv.conf of its own.
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, __file__])

run("ip", "link", "set", "lo", "up")
run("ip", "address", "add", f"{RESOLVER}/32", "dev", "lo")
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind((RESOLVER, 53))

with Lab() as lab:
    resolv = lab.path("resolv.conf")
    with open(resolv, "w") as file:
        file.write(f"nameserver {RESOLVER}\n")
    run("mount", "--bind", resolv, "/etc/resolv.conf")
    allow = [{"session": "host-a", "access": "rw"}]
    server = lab.server([{"name": "own", "allow": allow, "storage": {"kind": "memory", "size": "1MiB"}}])
    client = lab.client(server, {"own": {}})
    server.config_with(lambda config: config["exports"].append(
        {"name": "other", "allow": allow,
         "storage": {"kind": "nbd", "uri": "nbd://storage.example:10809/"}}))
    server.ctl("config", "apply")
    silent.settimeout(PATIENCE_S)
    silent.recv(512)  # somebody asks for the name, and waits
    while True:
        run("qemu-io", "-f", "raw", "-c", "write -P 7 0 4096", "-c", "read -P 7 0 4096", lab.uri("own"))
        state = {one["name"]: one for one in server.status()["exports"]}["other"]
        check(state["state"] == "waiting", state)
        if "connecting" not in state["reason"]:
            break  # the resolver has given up: all the time the other export has answered
    check("name resolution" in state["reason"], state)
    client.stop()
    server.stop()
    run("umount", "/etc/resolv.conf")
