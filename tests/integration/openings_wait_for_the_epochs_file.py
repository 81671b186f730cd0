"""An export whose last flush is noted waits until the epochs' file says that it is in use: not for ever, and nobody else waits. A pipe
that nobody reads is a disk that does not write that file."""
from harness import *
from nbd_clients import connected


class World:
    """A server that has noted the last flush of vol, does not export it now, and cannot write its epochs' file."""

    def __init__(self, lab, name):
        self.lab, self.name = lab, name
        os.mkdir(lab.path(name))
        self.allow = [{"session": "host-a", "access": "rw"}]
        self.both = [self.export("other"), self.export("vol")]
        self.server = lab.server(self.both, name=f"{name}-server", prefix=["env", f"STATE_DIRECTORY={lab.path(name)}"])
        check(self.server.stop() == 0, "it ends in order")
        check(self.file().count("flushed") == 2, self.file())
        self.server.config_with(lambda config: config.update(exports=self.both[:1]))
        self.server.start()
        self.pipe = lab.path(f"{name}/server.epochs.new")
        os.mkfifo(self.pipe)
        self.client = lab.client(self.server, {"other": {}, "vol": {}}, name=f"{name}-a", wait_for_devices=False)
        wait_until("the other device is open", lambda: self.device("other")["state"] == "open")
        self.server.ctl("exports", "add", "vol", self.both[1]["path"], "--allow", "host-a=rw")

    def export(self, name):
        return {"name": name, "path": self.lab.path(f"{self.name}/{name}.img"), "size": "1MiB", "allow": self.allow}

    def file(self):
        with open(self.lab.path(f"{self.name}/server.epochs")) as text:
            return text.read()

    def device(self, name):
        return next(one for one in self.client.status()["devices"] if one["name"] == name)

    def volume(self):
        return next(one for one in self.server.status()["exports"] if one["name"] == "vol")

    def was_late(self):
        """The server has not waited any longer: what was to be done before that was not."""
        return "not written for" in self.server.log()

    def file_goes_on(self):
        """Who waits in open(2) for a reader gets one, and whoever comes later finds no pipe."""
        reader = os.open(self.pipe, os.O_RDONLY | os.O_NONBLOCK)
        os.unlink(self.pipe)
        self.lab.cleanups.append(lambda: os.close(reader))

    def writes(self, name):
        h = connected(self.lab, name, self.client.name)
        h.pwrite(b"n" * 4096, 0)
        h.flush()
        h.shutdown()


# The server waits for two seconds: a machine that is busy with something else may need several attempts to do so much in them.
ATTEMPTS = 20

with Lab() as lab:
    for attempt in range(ATTEMPTS):
        world = World(lab, f"patience-{attempt}")
        seen = world.volume()
        if not world.was_late():
            break
        world.file_goes_on()
    check(seen["state"] == "waiting" and "server.epochs is being written" in seen["reason"], f"{seen}")
    world.writes("other")
    wait_until("the device is open though that file is not written", lambda: world.device("vol")["state"] == "open")
    said = world.server.log()
    check("server.epochs: not written for 2 s; " in said and "vol.img is exported all the same" in said, said)
    world.writes("vol")
    world.file_goes_on()

    for attempt in range(ATTEMPTS):
        world = World(lab, f"written-{attempt}")
        world.file_goes_on()
        wait_until("the device is open", lambda: world.device("vol")["state"] == "open")
        world.writes("vol")
        if not world.was_late():
            break
    check(not world.was_late(), world.server.log())

    world = World(lab, "stop")
    check(world.server.stop() == 0, "it ends though its files cannot be written")
    check("imed out" in world.server.log(), world.server.log())
    os.unlink(world.pipe)
    world.server.config_with(lambda config: config.update(exports=world.both))
    world.server.start()
    wait_until("the device is open by the next server", lambda: world.device("vol")["state"] == "open")
    world.writes("vol")
