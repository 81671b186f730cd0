"""A device whose export stands for another file neither reads nor writes that: what is asked of it waits, until the
file that it knew is back, or it is mapped anew. So it is while its session goes on, over a lost link, and over a restart
of the server or of the client; one that stands for the same file goes on at once."""
import errno
import socket
import threading

from harness import *
from nbd_clients import *

BLOCK = 4096
SIZE = 1 << 20



class Link:
    """Between the clients and their server; it can be cut."""
    def __init__(self):
        self.to = None
        self.open = True
        self.pairs = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.listener.accept()
            try:
                if not self.open:
                    raise OSError
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                client.close()
                continue
            self.pairs.append((client, server))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    def copy(self, one, other):
        try:
            while data := one.recv(1 << 16):
                other.sendall(data)
        except OSError:
            pass
        self.end(one, other)

    @staticmethod
    def end(*sockets):
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        self.open = False
        for pair in self.pairs:
            self.end(*pair)


with Lab() as lab:
    link = Link()
    ACCESS = {"writer": "rw", "reader": "ro"}
    SESSIONS = {"writer": "host-a", "reader": "host-b"}
    ALLOW = [{"session": SESSIONS[name], "access": access} for name, access in ACCESS.items()]

    def image(name, byte, size=SIZE):
        with open(lab.path(name), "wb") as out:
            out.write(byte * size)
        return lab.path(name)

    def first_of(path):
        with open(path, "rb") as file:
            return file.read(BLOCK)

    def start_server(path, **more):
        global server
        server = lab.server([{"name": "vol", "path": path, "allow": ALLOW, **more}])
        link.to = server.port
        link.open = True

    def start_client(name, **more):
        clients[name] = lab.client(link, {"vol": {"access": ACCESS[name]}}, name=name, session=SESSIONS[name], **more)

    def devices():
        return {name: client.status()["devices"][0] for name, client in clients.items()}

    def waits():
        return all("another file or device" in device["reason"] for device in devices().values())

    def states():
        return {device["state"] for device in devices().values()}

    def opened():
        wait_until("both are open", lambda: states() == {"open"})
        return {name: connected(lab, "vol", name) for name in clients}

    def all_read(byte):
        for handle in handles.values():
            check(bytes(handle.pread(BLOCK, 0)) == byte * BLOCK, f"it reads {byte}")

    def map_anew():
        for name, client in clients.items():
            client.ctl("unmap", "vol", "--force")
            access = ["--ro"] if ACCESS[name] == "ro" else []
            client.ctl("map", "vol", "--session", SESSIONS[name], *access, "--nbd",
                       f"unix:{lab.socket(name, 'vol')}")
        return opened()

    def add(path, *more):
        server.ctl("exports", "add", "vol", path, "--allow", "host-a=rw", "--allow", "host-b=ro", *more)

    def swapped(swap, former, other):
        """Another file comes in the place of the one that is known. Nothing is done to it; then the former is back."""
        known, before = first_of(former), first_of(other)
        swap(other)
        asked = [handles["writer"].aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b"h" * BLOCK)), BLOCK),
                 handles["reader"].aio_pread(nbd.Buffer(BLOCK), 0)]
        wait_until("both say why they wait", waits)
        check(states() == {"reopening"}, "and go on to wait")
        check({device["size_bytes"] for device in devices().values()} == {SIZE}, "with the size that they know")
        check(not handles["writer"].aio_command_completed(asked[0]), "what is held is held")
        check(first_of(other) == before and first_of(former) == known, "neither file was written to")
        swap(former)
        for handle, request in zip((handles["writer"], handles["reader"]), asked):
            while not handle.aio_command_completed(request):
                handle.poll(-1)
        wait_until("both are open", lambda: states() == {"open"})
        with open(former, "rb") as file:
            file.seek(BLOCK)
            check(file.read(BLOCK) == b"h" * BLOCK, "what was held has come to where it belongs")
        all_read(known[:1])

    a, b = image("a", b"a"), image("b", b"b", SIZE // 4)
    clients = {}
    start_server(a)
    for name in ACCESS:
        start_client(name)
    handles = opened()
    handles["writer"].flush()
    all_read(b"a")
    uuid = server.status()["exports"][0]["uuid"]
    check(len(uuid) == 36 and devices()["reader"]["uuid"] == uuid, "both daemons say which file it is")

    # The same file goes and comes; devices that nobody uses at the moment hear of it.
    server.ctl("exports", "remove", "vol", "--force")
    wait_until("both say that it is gone", lambda: states() == {"reopening"})
    add(a)
    wait_until("both are open", lambda: states() == {"open"})
    all_read(b"a")

    # By commands, while the sessions go on, and while they are cut off.
    def removed_and_added(path):
        server.ctl("exports", "remove", "vol", "--force")
        add(path)

    def while_cut_off(path):
        link.cut()
        wait_until("the sessions are lost", lambda: states() == {"reopening"})
        removed_and_added(path)
        link.open = True

    # By a configuration that is read anew.
    def configured(path):
        server.config_with(lambda config: config["exports"][0].update(path=path))
        server.ctl("config", "apply", "--force")

    # Over restarts of the server.
    def restarted(path):
        server.kill()
        start_server(path)

    for swap in (removed_and_added, while_cut_off, configured, restarted):
        swapped(swap, a, b)

    # Over restarts of the client, for who waits for it, or comes back to it, has what is of the former file.
    def in_vain(client):
        """And a life that finds no server, and so no end of what its former one knew."""
        client.stop()
        link.cut()
        client.start()
        client.stop()
        link.open = True

    ends = {"killed": lambda client: client.kill(), "stopped with NBD clients": lambda client: client.stop(),
            "stopped once more before it was open": in_vain}
    for how, end in ends.items():
        for client in clients.values():
            end(client)
        removed_and_added(b)
        for name in ACCESS:
            start_client(name, wait_for_devices=False)
        wait_until(f"{how}, they know what it was", waits)
        check(all(uuid in device["reason"] for device in devices().values()), "they say which file they wait for")
        removed_and_added(a)
        handles = opened()

    # Nobody is left who knows anything.
    del handles
    wait_until("no NBD client is left", lambda: all(device["connections"] == 0 for device in devices().values()))
    for client in clients.values():
        client.stop()
    removed_and_added(b)
    for name in ACCESS:
        start_client(name)
    handles = opened()
    all_read(b"b")
    del handles
    removed_and_added(a)
    handles = map_anew()
    all_read(b"a")
    handles["writer"].flush()

    # Another one of its size, while nobody uses it.
    same = image("same", b"s")
    configured(same)
    wait_until("both say why they wait", waits)
    configured(a)
    wait_until("both are open", lambda: states() == {"open"})

    # One that is gone for a while fails, and says so, and goes on when it is back.
    kept = lab.path("kept")
    os.rename(a, kept)
    wait_until("both say that it is gone", lambda: all("storage is gone" in device["reason"] for device in devices().values()))
    check(states() == {"open"}, states())
    check("storage is gone" in clients["writer"].ctl("list").stdout, clients["writer"].ctl("list").stdout)
    check(error_of(handles["writer"].pwrite, b"k" * BLOCK, BLOCK) == errno.EIO, "what is written fails")
    check(error_of(handles["reader"].pread, BLOCK, 0) == errno.EIO, "so is what is read")
    os.rename(kept, a)
    wait_until("it is back", lambda: all(device["reason"] == "" for device in devices().values()))
    handles["writer"].pwrite(b"k" * BLOCK, BLOCK)
    handles["writer"].flush()
    all_read(b"a")

    # Another one is put in its place, and the former one back.
    c = image("c", b"c")
    os.rename(a, kept)
    os.rename(c, a)
    wait_until("both say why they wait", waits)
    os.rename(a, c)
    os.rename(kept, a)
    wait_until("both are open", lambda: states() == {"open"})
    all_read(b"a")

    # What is there is right: they are mapped anew.
    os.rename(c, a)
    wait_until("both say why they wait", waits)
    handles = map_anew()
    all_read(b"c")
    handles["writer"].pwrite(b"w" * BLOCK, 0)
    handles["writer"].flush()
    check(first_of(a) == b"w" * BLOCK, "what is mapped anew is used")

    # Its content moves into another file, and the administrator says that it is the same.
    uuid = server.status()["exports"][0]["uuid"]
    server.kill()
    moved = lab.path("moved")
    with open(moved, "wb") as out, open(a, "rb") as image_file:
        out.write(image_file.read())
    start_server(moved, uuid=uuid)
    all_read(b"w")
    handles["writer"].pwrite(b"m" * BLOCK, 0)
    handles["writer"].flush()
    check(first_of(moved) == b"m" * BLOCK, "it goes on there")
    server.ctl("exports", "remove", "vol", "--force")
    add(moved, "--uuid", uuid.upper())
    all_read(b"m")
