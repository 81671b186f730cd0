"""An open of a volume that others may write, too, waits until the writers' file is written: not for ever, and whatever
happens to its session, its export or the server meanwhile. A pipe that nobody reads is a disk that does not write that file."""
from harness import *
from nbd_clients import connected


# The server waits for five seconds: a machine that is busy with something else may need several attempts to do so much in them.
ATTEMPTS = 20


def in_time(lab, name, do=lambda world: None):
    """A world to which that was done while the server waited for its file."""
    for attempt in range(ATTEMPTS):
        try:
            world = World(lab, f"{name}-{attempt}")
            do(world)
            return world
        except TooLate:
            continue
    raise AssertionError(f"{name}: in {ATTEMPTS} attempts the server has not waited for its file")


class TooLate(Exception):
    pass


class World:
    """A server whose writers' file hangs, and a client that waits for its device."""

    def __init__(self, lab, name):
        self.lab, self.name = lab, name
        os.mkdir(lab.path(name))
        self.image = lab.path(f"{name}/vol.img")
        allow = [{"session": session, "access": "migration"} for session in ("host-a", "host-b")]
        self.server = lab.server([{"name": "vol", "path": self.image, "size": "1MiB", "allow": allow}],
                                 name=f"{name}-server", prefix=["env", f"STATE_DIRECTORY={lab.path(name)}"])
        self.pipe = lab.path(f"{name}/server.writers.new")
        os.mkfifo(self.pipe)
        self.client = lab.client(self.server, {"vol": {}}, name=f"{name}-a", wait_for_devices=False)
        wait_until("the server has the open", lambda: "opened vol (rw)" in self.server.log())
        self.still_waits("the client has no answer")

    def device(self):
        return self.client.status()["devices"][0]

    def is_in_time(self):
        if "not written for" in self.server.log():
            self.file_goes_on()
            raise TooLate

    def still_waits(self, why):
        device = self.device()
        self.is_in_time()
        check(device["state"] == "opening", f"{why}: {device}")

    def file_goes_on(self):
        """Who waits in open(2) for a reader gets one, and whoever comes later finds no pipe."""
        if not os.path.exists(self.pipe):
            return
        reader = os.open(self.pipe, os.O_RDONLY | os.O_NONBLOCK)
        os.unlink(self.pipe)
        self.lab.cleanups.append(lambda: os.close(reader))

    def server_ends(self, what):
        self.server.process.send_signal(signal.SIGTERM)
        wait_until(f"the server ends {what}", lambda: self.server.process.poll() is not None)
        check(self.server.process.returncode == 0, f"by itself: {self.server.process.returncode}")

    def opens(self, what):
        wait_until(f"the device is open {what}", lambda: self.device()["state"] == "open")
        h = connected(self.lab, "vol", self.client.name)
        h.pwrite(b"n" * 4096, 0)
        h.flush()
        h.shutdown()


with Lab() as lab:
    world = in_time(lab, "patience")
    world.opens("though the file is not written")
    said = world.server.log()
    check("server.writers: not written for 5 s, host-a has vol open all the same" in said, said)
    world.file_goes_on()

    def written(world):
        world.file_goes_on()
        world.opens("as soon as there is an end to the writing of the file")
        world.is_in_time()

    in_time(lab, "written", written)

    world = in_time(lab, "session")
    world.client.kill()
    wait_until("its session is gone", lambda: not world.server.status()["sessions"])
    world.file_goes_on()
    world.client.start()
    world.opens("by the next life of its client")

    world = in_time(lab, "export")
    world.server.ctl("exports", "remove", "vol", "--force")
    world.file_goes_on()
    wait_until("the client hears that there is none", lambda: "no such export" in world.device()["reason"])
    world.server.ctl("exports", "add", "vol", world.image, "--allow", "host-a=rw", "--allow", "host-b=rw")
    world.opens("once there is one again")

    def storage_goes(world):
        os.rename(world.image, f"{world.image}.away")
        wait_until("the server has seen that", lambda: world.server.status()["exports"][0]["state"] != "ready")
        world.file_goes_on()
        world.still_waits("it is not open")

    world = in_time(lab, "storage", storage_goes)
    os.rename(f"{world.image}.away", world.image)
    world.opens("once its file is back")

    world = in_time(lab, "stop")
    world.server_ends("though the file hangs")
    os.unlink(world.pipe)
    world.server.start()
    world.opens("by the server that is started again")
    # Also if nothing was under way there before.
    for name in ("server.writers", "server.epochs"):
        os.mkfifo(lab.path(f"{world.name}/{name}.new"))
    world.server_ends("though its files cannot be written")
    check(world.server.log().count("imed out") >= 2, world.server.log())
