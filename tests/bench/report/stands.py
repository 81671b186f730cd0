"""What is measured beside each other: peers that are on this machine, and ours."""

import json
import os
import shutil

from processes import Daemons, free_port, writing

SESSIONS_MAX = 16  # of our engine: one for each job


class Stand:
    """One way to the storage. `words` are fio's; `hops` are sockets between fio and the storage."""

    name, hops, needs, note = "", 1, (), ""
    image_name = "image"

    def __init__(self, bench, storage):
        self.bench, self.storage = bench, storage
        self.folder = os.path.join(bench.folder, f"{self.name}-{storage}")
        os.makedirs(self.folder)
        self.daemons = Daemons(self.folder)
        self.words, self.files = [], {}

    @classmethod
    def missing(cls, bench):
        """Why it cannot be measured here, or None."""
        for program in cls.needs:
            if not shutil.which(program):
                return f"{program} is not installed"
        return None

    def image(self):
        return self.bench.image(self.storage, self.image_name)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        self.files[name] = content
        with writing(self.path(name)) as file:
            file.write(content.encode())
        return self.path(name)

    def as_started(self):
        return {"commands": self.daemons.commands, "files": self.files, "fio": self.words}

    def stop(self):
        self.daemons.stop()


class NbdStand(Stand):
    @classmethod
    def missing(cls, bench):
        return super().missing(bench) or (
            None if bench.fio_has_nbd else "fio is without its nbd engine")

    def over_tcp(self, port, export=""):
        self.words = ["--ioengine=nbd", f"--uri=nbd://127.0.0.1:{port}/{export}"]

    def over_unix(self, path, export=""):
        self.words = ["--ioengine=nbd", f"--uri=nbd+unix:///{export}?socket={path}"]


class NbdkitTcp(NbdStand):
    name, needs = "nbdkit-tcp", ("nbdkit",)

    def start(self):
        port = free_port()
        self.daemons.start("server", "nbdkit", "-f", "-i", "127.0.0.1", "-p", port, "file",
                           self.image(), ready=("tcp", port))
        self.over_tcp(port)


class NbdkitUnix(NbdStand):
    name, needs = "nbdkit-unix", ("nbdkit",)

    def start(self):
        path = self.path("s")
        self.daemons.start("server", "nbdkit", "-f", "-U", path, "file", self.image(),
                           ready=("unix", path))
        self.over_unix(path)


class NbdkitProxy(NbdStand):
    name, hops, needs = "nbdkit-proxy", 2, ("nbdkit",)
    note = "nbdkit's nbd plugin in front of nbdkit over TCP"

    def start(self):
        port, path = free_port(), self.path("s")
        self.daemons.start("server", "nbdkit", "-f", "-i", "127.0.0.1", "-p", port, "file",
                           self.image(), ready=("tcp", port))
        self.daemons.start("client", "nbdkit", "-f", "-U", path, "nbd",
                           f"uri=nbd://127.0.0.1:{port}", ready=("unix", path))
        self.over_unix(path)


class QemuNbd(NbdStand):
    name, needs = "qemu-nbd-tcp", ("qemu-nbd",)

    def start(self):
        port = free_port()
        # Without its lock on the image, which others have open, too.
        self.daemons.start(
            "server", "qemu-nbd", "-t", "-e", "16", "-b", "127.0.0.1", "-p", port, "--image-opts",
            f"driver=raw,file.driver=file,file.filename={self.image()},file.locking=off,"
            "file.aio=io_uring", ready=("tcp", port))
        self.over_tcp(port)


class QemuStorageDaemon(NbdStand):
    name, needs = "qemu-storage-daemon-tcp", ("qemu-storage-daemon",)

    def start(self):
        port = free_port()
        self.daemons.start(
            "server", "qemu-storage-daemon", "--blockdev",
            f"driver=file,node-name=image,filename={self.image()},aio=io_uring,locking=off",
            "--nbd-server", f"addr.type=inet,addr.host=127.0.0.1,addr.port={port},max-connections=0",
            "--export", "type=nbd,id=export,node-name=image,name=vol,writable=on",
            ready=("tcp", port))
        self.over_tcp(port, "vol")


class NbdServer(NbdStand):
    name, needs = "nbd-server-tcp", ("nbd-server",)

    def start(self):
        port = free_port()
        config = self.write("config", f"[generic]\nlistenaddr = 127.0.0.1\nport = {port}\n"
                                      f"[vol]\nexportname = {self.image()}\n"
                            "flush = true\ntrim = true\n")
        self.daemons.start("server", "nbd-server", "-C", config, "-p", self.path("pid"),
                           ready=("tcp", port), background=True)
        self.over_tcp(port, "vol")


class Ours(Stand):
    """Each with a server of its own: a volume has one writer."""

    @classmethod
    def missing(cls, bench):
        return super().missing(bench) or bench.not_built("rnbd-server/rnbd-server")

    def server(self, sessions):
        port = free_port()
        config = {"listen": [{"tcp": f"127.0.0.1:{port}"}], "control": self.path("server.ctl"),
                  "exports": [{"name": "vol", "path": self.image(), "allow": [
                      {"session": session, "access": "rw"} for session in sessions]}]}
        self.daemons.start("server", self.bench.built("rnbd-server/rnbd-server"), "--config",
                           self.write("server.yaml", json.dumps(config)), ready=("tcp", port))
        return port


class OursOneHop(Ours):
    name, note = "rnbd-one-hop", "our engine, TCP, rnbd-server"

    @classmethod
    def missing(cls, bench):
        return super().missing(bench) or bench.not_built("fio-engine/fio-rnbd.so")

    def start(self):
        port = self.server([f"bench-{i}" for i in range(1, SESSIONS_MAX + 1)])
        engine = self.bench.built("fio-engine/fio-rnbd.so")
        self.words = [f"--ioengine=external:{engine}", f"--path=127.0.0.1:{port}",
                      "--session=bench-%j", "--volume=vol"]


class OursTwoHops(Ours, NbdStand):
    name, hops = "rnbd-two-hops", 2
    note = "fio's nbd engine, rnbd-client, TCP, rnbd-server"
    image_name = "image-2"  # two servers never share one

    @classmethod
    def missing(cls, bench):
        return super().missing(bench) or bench.not_built("rnbd-client/rnbd-client")

    def start(self):
        port, path = self.server(["bench"]), self.path("s")
        config = {"control": self.path("client.ctl"),
                  "sessions": [{"name": "bench", "paths": [{"tcp": f"127.0.0.1:{port}"}]}],
                  "devices": [{"name": "vol", "session": "bench", "volume": "vol", "access": "rw",
                               "nbd": f"unix:{path}"}]}
        self.daemons.start("client", self.bench.built("rnbd-client/rnbd-client"), "--config",
                           self.write("client.yaml", json.dumps(config)), ready=("unix", path))
        self.over_unix(path, "vol")


class Local(Stand):
    name, hops, note = "local", 0, "fio's io_uring on the file itself: no socket"

    def start(self):
        self.words = ["--ioengine=io_uring", f"--filename={self.image()}", "--invalidate=0"]


ALL = [NbdkitTcp, NbdkitUnix, QemuNbd, QemuStorageDaemon, NbdServer, OursOneHop, NbdkitProxy,
       OursTwoHops, Local]
