"""A client that was away while another one has written to its volume is not let in again: what it held fails, and is not
written over what is newer. One in whose absence nobody has written goes on."""
import errno
import signal

from harness import *
from nbd_clients import *

OLD, NEW = b"o" * 4096, b"n" * 4096


def device(client):
    return client.status()["devices"][0]


def wait_for(client, word):
    wait_until(f"{client.name}: the device is {word}", lambda: device(client)["state"] == word)


class World:
    """A server, and a client with an NBD connection. One at a time has the name "first"."""

    def __init__(self, lab, name, keeps_state=False, storage=None):
        self.lab, self.name = lab, name
        os.mkdir(lab.path(name))
        self.image = lab.path(f"{name}/vol.img")
        allow = [{"session": session, "access": "migration"} for session in ("host-a", "host-b")]
        state = f"STATE_DIRECTORY={lab.path(name) if keeps_state else ''}"
        described = {"path": self.image, "size": "1MiB"}
        if storage:
            described = {"storage": dict(storage, of=dict(described, kind="path"))}
        self.server = lab.server([dict(described, name="vol", allow=allow)],
                                 name=f"{name}-server", prefix=["env", state])
        self.address = f"127.0.0.1:{self.server.port}"
        self.first = lab.client(self.server, {"vol": {}}, name=f"{name}-a")
        self.h = connected(lab, "vol", self.first.name)
        self.h.pwrite(b"x" * 4096, 0)
        self.h.flush()

    def leave(self):
        """The first client is away, with a write that is not answered."""
        self.first.ctl("paths", "disconnect", "host-a", self.address)
        wait_for(self.first, "reopening")
        self.held = self.h.aio_pwrite(OLD, 0)

    def second(self, write, access="rw", end="stop"):
        """Another client opens the volume, may write, and goes."""
        client = self.lab.client(self.server, {"vol": {"access": access}}, name=f"{self.name}-b", session="host-b")
        if write:
            h = connected(self.lab, "vol", client.name)
            h.pwrite(NEW, 0)
            h.flush()
            h.shutdown()
        getattr(client, end)()
        wait_until("the server has noticed", lambda: not self.server.status()["sessions"])

    def come_back(self):
        self.first.ctl("paths", "reconnect", "host-a", self.address)

    def held_ends_with(self):
        def finish():
            while not self.h.aio_command_completed(self.held):
                self.h.poll(-1)
        return error_of(finish)

    def content(self):
        with open(self.image, "rb") as image:
            return image.read(4096)

    def stays_out(self, after):
        check(self.held_ends_with() == errno.EIO, f"what was held fails {after}")
        check(device(self.first)["state"] == "superseded", f"{device(self.first)}")
        check("another writer has written" in device(self.first)["reason"], f"{device(self.first)}")
        check(error_of(self.h.pread, 4096, 0) == errno.EIO, f"reads fail {after}")
        check(error_of(self.h.pwrite, OLD, 0) == errno.EIO, f"writes fail {after}")
        check(error_of(self.h.flush) == errno.EIO, f"flushes fail {after}")
        check(self.content() == NEW, f"what is newer stays {after}")

    def goes_on(self, after):
        check(self.held_ends_with() == 0, f"what was held is written {after}")
        self.h.flush()
        check(self.content() == OLD, f"the image has it {after}")


with Lab() as lab:
    world = World(lab, "simple")
    world.leave()
    wait_until("the server has noticed", lambda: not world.server.status()["sessions"])
    check(world.server.status()["exports"][0]["away"] == ["host-a"], f"{world.server.status()['exports']}")
    check("host-a (away)" in world.server.ctl("status").stdout, world.server.ctl("status").stdout)
    world.second(write=True)
    check(world.server.status()["exports"][0]["away"] == [], "the one is out, the other has closed")
    check("host-b writes, while host-a is away" in world.server.log(), "the server says whom it will not let in")
    world.come_back()
    world.stays_out("after another one has written")
    check("open of vol (rw) from 127.0.0.1 refused: it was away while another one wrote" in world.server.log(),
          "and that it did not")
    # Who comes now is refused, and people are told why.
    refused = run("nbdinfo", lab.uri("vol", world.first.name), ok=False)
    check(refused.returncode != 0, refused)
    check("superseded (another writer" in world.first.ctl("list").stdout, world.first.ctl("list").stdout)
    check("superseded" in world.first.ctl("explain", "vol").stdout, world.first.ctl("explain", "vol").stdout)
    # Also when the link is lost and comes back once more.
    world.server.kill()
    world.server.start()
    wait_until("the session is up again", lambda: world.first.status()["sessions"][0]["state"] == "connected")
    check(device(world.first)["state"] == "superseded", "for ever")
    # Mapped anew it is as good as any.
    world.h.shutdown()
    world.first.ctl("unmap", "vol")
    world.first.ctl("map", "vol", "from", "host-a", "--nbd", f"unix:{lab.socket(world.first.name, 'vol')}")
    wait_for(world.first, "open")
    h = connected(lab, "vol", world.first.name)
    check(h.pread(4096, 0) == NEW, "it has what is there now")
    h.pwrite(OLD, 0)
    h.shutdown()
    # Its own former life is no other writer.
    world.h = connected(lab, "vol", world.first.name)
    world.leave()
    world.come_back()
    world.goes_on("after the loss of the link")

    world = World(lab, "killed")
    world.leave()
    world.second(write=True, end="kill")
    world.come_back()
    world.stays_out("after another one has written and died")

    world = World(lab, "silent")
    world.leave()
    world.second(write=False)
    world.second(write=False, end="kill")
    world.come_back()
    world.goes_on("after others have only opened it")

    world = World(lab, "reader")
    world.leave()
    world.second(write=False, access="ro")
    world.come_back()
    world.goes_on("after another one has read")

    # It is the file that counts, not the name: written to under another name, and another one written to under its own.
    def export(world, name, path):
        world.server.ctl("exports", "add", name, path, "--allow", "host-a=rw", "--allow", "host-b=rw", "--size", "1MiB")

    def write_by_another(world, name, path):
        world.server.ctl("exports", "remove", "vol", "--force")
        export(world, name, path)
        client = lab.client(world.server, {name: {}}, name=f"{world.name}-b", session="host-b")
        h = connected(lab, name, client.name)
        h.pwrite(NEW, 0)
        h.flush()
        h.shutdown()
        client.stop()
        world.server.ctl("exports", "remove", name)
        export(world, "vol", world.image)

    world = World(lab, "renamed")
    world.leave()
    write_by_another(world, "other", world.image)
    world.come_back()
    world.stays_out("after another one has written to its file under another name")

    world = World(lab, "swapped")
    world.leave()
    write_by_another(world, "vol", lab.path("another"))
    world.come_back()
    world.goes_on("after another one has written to another file under its name")

    # One that was there beside it, for a migration.
    world = World(lab, "migration")
    target = lab.client(world.server, {"vol": {"access": "migration"}}, name="target", session="host-b")
    h = connected(lab, "vol", "target")
    h.pwrite(b"y" * 4096, 0)
    world.h.pwrite(b"x" * 4096, 0)
    world.leave()
    h.pwrite(NEW, 0)
    h.shutdown()
    target.stop()
    world.come_back()
    world.stays_out("after the other one of a migration has written while it was away")

    # A restart of the server, or of the network, is no absence for the two of a migration, in which order ever they come
    # back: the target has written nothing so far.
    world = World(lab, "both", keeps_state=True)
    target = lab.client(world.server, {"vol": {"access": "migration"}}, name="both-b", session="host-b")
    h = connected(lab, "vol", "both-b")
    h.pread(4096, 0)
    for _ in range(3):
        held = world.h.aio_pwrite(OLD, 0)
        world.server.stop()
        world.server.start()
        for client in (world.first, target):
            wait_for(client, "open")
        while not world.h.aio_command_completed(held):
            world.h.poll(-1)
    check(h.pread(4096, 0) == OLD, "both go on")

    # Who is away is so from the beginning, not only when what it had in flight has ended.
    for name in ("evicted", "disconnected"):
        gate = lab.path(f"{name}-gate")
        world = World(lab, name, storage={"kind": "delay", "gate": gate, "gate_operations": "read"})
        target = lab.client(world.server, {"vol": {"access": "migration"}}, name=f"{name}-b", session="host-b")
        h = connected(lab, "vol", target.name)
        h.pwrite(b"y" * 4096, 0)
        open(gate, "w").close()
        world.h.aio_pread(nbd.Buffer(4096), 8192)
        wait_until("it is at the storage", lambda: world.server.status()["exports"][0]["in_flight"] == 1)
        if name == "evicted":
            world.server.ctl("exports", "evict", "vol", "host-a", "--for", "1h")
            world.held = world.h.aio_pwrite(OLD, 0)
        else:
            world.leave()
        done = []
        h.aio_pwrite(NEW, 0, lambda error: done.append(error.value) or 1)
        wait_until("the other one's write is there, too, or done", lambda: h.poll(0) is not None and (
            done or world.server.status()["exports"][0]["in_flight"] == 2))
        os.unlink(gate)
        while not done:
            h.poll(-1)
        check(done == [0], done)
        h.flush()
        h.shutdown()
        target.stop()
        if name == "evicted":
            world.server.ctl("exports", "evict", "vol", "host-a", "--for", "0")
        else:
            world.come_back()
        world.stays_out(f"after it was {name} with something in flight, and another one has written")

    # What the one that is out has at the storage ends before the other one's write, not after it.
    gate = lab.path("gate")
    world = World(lab, "late", storage={"kind": "delay", "gate": gate, "gate_count": 1})
    target = lab.client(world.server, {"vol": {"access": "migration"}}, name="late-b", session="host-b")
    h = connected(lab, "vol", target.name)
    open(gate, "w").close()
    world.held = world.h.aio_pwrite(OLD, 0)
    wait_until("it is at the storage", lambda: world.server.status()["exports"][0]["in_flight"] == 1)
    world.server.ctl("exports", "evict", "vol", "host-a", "--for", "1h")
    newer = h.aio_pwrite(NEW, 0)
    wait_until("so is the newer one", lambda: world.server.status()["exports"][0]["in_flight"] == 2)
    check(h.aio_in_flight() == 1 and not h.aio_command_completed(newer), "that waits")
    os.unlink(gate)
    while not h.aio_command_completed(newer):
        h.poll(-1)
    h.flush()
    check(world.content() == NEW, "what is newer is written last")
    world.server.ctl("exports", "evict", "vol", "host-a", "--for", "0")
    check(error_of(world.h.pread, 4096, 0) == errno.EIO, "the other one is out")
    h.shutdown()

    # A server that is killed as soon as an open is answered leaves the next one who may hold writes: also of who had it
    # open as another writer before.
    world = World(lab, "server-killed", keeps_state=True)
    world.h.shutdown()
    world.first.ctl("unmap", "vol")
    world.first.ctl("map", "vol", "from", "host-a", "--nbd", f"unix:{lab.socket(world.first.name, 'vol')}")
    world.h = connected(lab, "vol", world.first.name)
    world.h.pwrite(b"y" * 4096, 0)
    os.kill(world.first.process.pid, signal.SIGSTOP)
    world.server.kill()
    world.server.start()
    world.second(write=True)
    world.held = world.h.aio_pwrite(OLD, 0)
    os.kill(world.first.process.pid, signal.SIGCONT)
    world.stays_out("after the server was killed and another one has written")

    # A daemon that was killed comes back as the same writer: its NBD clients may still hold what it did.
    world = World(lab, "crash")
    world.first.kill()
    world.second(write=True)
    world.first.start()
    wait_for(world.first, "superseded")
    world.first.stop()
    world.first.start()
    wait_for(world.first, "superseded")
    world.first.ctl("unmap", "vol")
    world.first.ctl("map", "vol", "from", "host-a", "--nbd", f"unix:{lab.socket(world.first.name, 'vol')}")
    wait_for(world.first, "open")
    for end in ("kill", "stop"):
        getattr(world.first, end)()
        world.second(write=end == "stop")
        world.first.start()
        wait_for(world.first, "open")
    connected(lab, "vol", world.first.name).shutdown()
    wait_until("its NBD client has come back and gone", lambda: device(world.first)["connections"] == 0)
    world.first.stop()
    check(not os.path.exists(f"{world.first.control}.writers"), "nothing of it is left")

    # What the server knows outlives it, if systemd gives it a folder.
    for end in ("stop", "kill"):
        world = World(lab, f"after-{end}", keeps_state=True)
        file = lab.path(f"after-{end}/server.writers")
        check(os.path.exists(file), "the writer is in the file since it was told that it has it open")
        world.leave()
        getattr(world.server, end)()
        world.server.start()
        world.second(write=True)
        getattr(world.server, end)()
        world.server.start()
        world.come_back()
        world.stays_out(f"after restarts of the server by {end}")
        if end == "stop":
            world.h.shutdown()
            world.first.ctl("unmap", "vol")
            world.server.stop()
            check("known" not in open(file).read(), f"who has closed is not in the file: {open(file).read()}")
            world.server.start()

    # A file that cannot be written is told of, and costs no service.
    world = World(lab, "full", keeps_state=True)
    check(os.path.exists(lab.path("full/server.writers")), "the writer is in the file")
    os.mkdir(lab.path("full/server.writers.new"))
    world.leave()
    world.second(write=True)
    check("server.writers: Is a directory; a server that is started again may" in world.server.log(),
          "the log says what cannot be kept")
    world.come_back()
    world.stays_out("with a file that cannot be written")
