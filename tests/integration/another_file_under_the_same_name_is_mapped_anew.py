"""A device whose export stands for another file while the session goes on neither reads nor writes that, until it is
mapped anew; one that stands for the same file goes on."""
from harness import *
from nbd_clients import *

BLOCK = 4096
SIZE = 1 << 20

with Lab() as lab:
    def image(name, byte):
        with open(lab.path(name), "wb") as out:
            out.write(byte * SIZE)
        return lab.path(name)

    def first_of(name):
        with open(lab.path(name), "rb") as file:
            return file.read(2)

    a, b = image("a", b"a"), image("b", b"b")
    allow = [{"session": "host-a", "access": "rw"}, {"session": "host-b", "access": "ro"}]
    server = lab.server([{"name": "vol", "path": a, "allow": allow}])
    clients = {"writer": lab.client(server, {"vol": {}}, name="writer"),
               "reader": lab.client(server, {"vol": {"access": "ro"}}, name="reader", session="host-b")}

    def states():
        return {name: client.status()["devices"][0]["state"] for name, client in clients.items()}

    def opened():
        return {name: connected(lab, "vol", name) for name in clients}

    def all_read(handles, byte):
        for handle in handles.values():
            check(bytes(handle.pread(BLOCK, 0)) == byte * BLOCK, f"it reads {byte}")

    def all_fail(handles):
        for handle in handles.values():
            check(error_of(handle.pread, BLOCK, 0) != 0, "no byte of another file is read")
        check(error_of(handles["writer"].pwrite, b"x" * BLOCK, 0) != 0, "none is written")
        check(error_of(handles["writer"].flush) != 0, "and no flush succeeds")
        check(set(states().values()) == {"superseded"}, "their states say why")

    def map_anew():
        for name, client in clients.items():
            client.ctl("unmap", "vol", "--force")
            access = ["--session", "host-a"] if name == "writer" else ["--session", "host-b", "--ro"]
            client.ctl("map", "vol", *access, "--nbd", f"unix:{lab.socket(name, 'vol')}")
        wait_until("both are open", lambda: set(states().values()) == {"open"})
        return opened()

    def add(path):
        server.ctl("exports", "add", "vol", path, "--allow", "host-a=rw", "--allow", "host-b=ro")

    handles = opened()
    handles["writer"].flush()
    all_read(handles, b"a")

    # The same file goes and comes.
    server.ctl("exports", "remove", "vol", "--force")
    add(a)
    all_read(handles, b"a")

    # Another one comes.
    server.ctl("exports", "remove", "vol", "--force")
    add(b)
    all_fail(handles)
    check(first_of("b") == b"bb" and first_of("a") == b"aa", "neither file was written to")
    handles = map_anew()
    all_read(handles, b"b")

    # Another one is put in its place.
    os.rename(image("c", b"c"), b)
    wait_until("the server has noticed", lambda: error_of(handles["reader"].pread, BLOCK, 0) != 0)
    wait_until("it is opened", lambda: server.status()["exports"][0]["state"] == "ready")
    for session in ("host-a", "host-b"):
        server.ctl("exports", "evict", "vol", session, "--for", "0")
    all_fail(handles)
    check(first_of("b") == b"cc", "it was not written to")
    handles = map_anew()
    all_read(handles, b"c")
    handles["writer"].pwrite(b"w" * BLOCK, 0)
    handles["writer"].flush()
    check(first_of("b") == b"ww", "what is mapped anew is used")

    # By a configuration that is read anew.
    server.config_with(lambda config: config["exports"][0].update(path=a))
    server.ctl("config", "apply", "--force")
    all_fail(handles)
    check(first_of("a") == b"aa", "it was not written to")
    all_read(map_anew(), b"a")
