"""Random edits of both daemons' files are applied under verified load; what they do not name notices nothing."""
from configurations import *
from harness import *
from multipath_lab import Judge

ROUNDS = int(os.environ.get("RNBD_ROUNDS", "5"))
SEED = int(os.environ.get("RNBD_SEED", str(random.randrange(1 << 32))))
POLICIES = ["round-robin", "min-inflight", "min-latency", "service-time"]
MIB = 1 << 20


class Files:
    """What the files are to say. vol0, its session host-a and its device are never touched."""

    def __init__(self, lab, rng):
        self.lab, self.rng = lab, rng
        self.port, self.spare = free_port(), [free_port() for _ in range(2)]
        self.ports = [self.port]
        self.exports = {"vol0": export("vol0", lab.path("vol0.img"), 64 * MIB)}
        self.sessions, self.devices = {}, {}
        self.files_ever = 0
        self.level = "info"

    def session(self, name):
        return {"name": name, "paths": [{"tcp": f"127.0.0.1:{self.port}"}], "policy": "min-inflight", **PATIENT}

    # --- Edits of the server's

    def add_export(self):
        name = f"vol{self.rng.randrange(1, 9)}"
        if name in self.exports:
            return
        self.files_ever += 1
        self.exports[name] = {
            "name": name, "path": self.lab.path(f"{self.files_ever}.img"), "size": self.rng.randrange(1, 5) * MIB,
            "allow": [{"session": one, "access": "rw"} for one in ("host-b", "host-c")]}

    def any_export(self):
        others = [name for name in self.exports if name != "vol0"]
        return self.exports[self.rng.choice(others)] if others else None

    def remove_export(self):
        one = self.any_export()
        if one:
            del self.exports[one["name"]]

    def change_allow(self):
        one = self.any_export()
        if one:
            one["allow"] = [{"session": s, "access": self.rng.choice(["ro", "rw", "migration"])}
                            for s in ("host-b", "host-c", "host-d") if self.rng.random() < 0.7]

    def grow(self):
        one = self.any_export()
        if one:
            one["size"] += self.rng.randrange(1, 3) * MIB

    def move_export(self):
        one = self.any_export()
        if one:
            self.files_ever += 1
            one["path"] = self.lab.path(f"{self.files_ever}.img")

    def change_io(self):
        one = self.any_export()
        if one:
            one["block_size"] = self.rng.choice([512, 4096])

    def change_listeners(self):
        port = self.rng.choice(self.spare)
        self.ports = [p for p in self.ports if p != port] if port in self.ports else self.ports + [port]

    def change_level(self):
        self.level = self.rng.choice(["debug", "info"])

    # --- Edits of the client's

    def add_session(self):
        name = self.rng.choice(["host-b", "host-c"])
        self.sessions.setdefault(name, self.session(name))

    def remove_session(self):
        if self.sessions:
            name = self.rng.choice(list(self.sessions))
            del self.sessions[name]
            self.devices = {n: d for n, d in self.devices.items() if d["session"] != name}

    def change_session(self):
        if self.sessions:
            one = self.sessions[self.rng.choice(list(self.sessions))]
            one["policy"] = self.rng.choice(POLICIES)
            one["hold_time"] = self.rng.choice(["forever", "1h", "2h"])
            one["request_deadline"] = self.rng.choice(["1s", "2s"])
            one["max_reconnect_attempts"] = self.rng.choice([-1, 1000])

    def change_paths(self):
        if self.sessions:
            one = self.sessions[self.rng.choice(list(self.sessions))]
            ports = [port for port in [self.port, *self.spare] if self.rng.random() < 0.6]
            # Where none of them leads to the server, one that works would be kept.
            if not set(ports) & set(self.ports):
                ports.append(self.port)
            one["paths"] = [{"tcp": f"127.0.0.1:{port}", "priority": self.rng.choice(["prefer", "standby"])}
                            for port in ports]

    def add_device(self):
        if self.sessions:
            session = self.rng.choice(list(self.sessions))
            volume = f"vol{self.rng.randrange(1, 9)}"
            name = f"{volume}-{session}"
            self.devices.setdefault(name, {
                "name": name, "session": session, "volume": volume, "access": "ro",
                "nbd": f"unix:{self.lab.socket('client', name)}"})

    def remove_device(self):
        if self.devices:
            del self.devices[self.rng.choice(list(self.devices))]

    def change_device(self):
        if self.devices:
            one = self.devices[self.rng.choice(list(self.devices))]
            one["access"] = self.rng.choice(["ro", "rw"])

    SERVER_EDITS = [add_export, add_export, remove_export, change_allow, grow, move_export, change_io,
                    change_listeners, change_level]
    CLIENT_EDITS = [add_session, remove_session, change_session, change_paths, add_device, add_device,
                    remove_device, change_device]

    # --- The files

    def spread(self, config, lists):
        """Elements of lists go to the file itself or to one of the folder; those of vol0 and host-a stay."""
        pieces = {}
        for key in lists:
            here = []
            for one in config[key]:
                if self.rng.random() < 0.5 or "vol0" in one.values() or "host-a" in one.values():
                    here.append(one)
                else:
                    name = f"{self.rng.randrange(3)}0.yaml"
                    pieces.setdefault(name, {}).setdefault(key, []).append(one)
            config[key] = here
        return config, pieces

    def server_files(self):
        return self.spread({"listen": [{"tcp": f"127.0.0.1:{port}"} for port in self.ports],
                            "exports": list(self.exports.values()), "log": {"level": self.level},
                            "heartbeat": PATIENT["heartbeat"]}, ["exports"])

    def client_files(self):
        first = {"name": "vol0", "session": "host-a", "volume": "vol0", "access": "rw",
                 "nbd": f"unix:{self.lab.socket('client', 'vol0')}"}
        return self.spread({"sessions": [self.session("host-a"), *self.sessions.values()],
                            "devices": [first, *self.devices.values()]}, ["sessions", "devices"])


def apply(daemon, rng):
    """By command or by signal; by force where something is in use."""
    document, _ = config(daemon, "diff")
    if any(one["conflict"] for one in document["objects"]):
        picture = changes(document)
        refused, code = config(daemon, "apply", ok=False)
        check(code == 5 and refused["state"] == "refused", refused)
        check(changes(config(daemon, "diff")[0]) == picture, "nothing was changed")
        how = "force"
        document, _ = config(daemon, "apply", "--force")
        check(document["state"] == "applied", document)
    elif rng.random() < 0.3:
        how = "signal"
        log = reload(daemon)
        check("configuration: applied" in log and "which failed" not in log, log)
    else:
        how = "apply"
        document, _ = config(daemon, "apply")
        check(document["state"] == "applied", document)
    after, _ = config(daemon, "diff")
    check(after["state"] == "same", after)
    return how, [one for one in document["objects"] if one["change"] != "unchanged"]


def check_server(server, files):
    status = server.status()
    found = {one["name"]: one for one in status["exports"]}
    check(set(found) == set(files.exports), (set(found), set(files.exports)))
    for name, wanted in files.exports.items():
        check(found[name]["path"] == wanted["path"], (found[name], wanted))
        check([(rule["session"], rule["access"]) for rule in found[name]["allow"]] ==
              [(rule["session"], rule["access"]) for rule in wanted["allow"]], (found[name], wanted))
        check(found[name]["block_size"] == wanted.get("block_size", 512), found[name])
        if name != "vol0":
            check(found[name]["state"] == "ready" and found[name]["size_bytes"] == wanted["size"], found[name])
    check({one["address"] for one in status["listen"]} == {f"127.0.0.1:{port}" for port in files.ports},
          status["listen"])


def check_client(client, files):
    status = client.status()
    sessions = {one["name"]: one for one in status["sessions"]}
    check(set(sessions) == {"host-a", *files.sessions}, set(sessions))
    for name, wanted in files.sessions.items():
        check(sessions[name]["policy"] == wanted["policy"], (sessions[name], wanted))
        check({(p["label"], p["priority"]) for p in sessions[name]["paths"]} ==
              {(p["tcp"], p.get("priority", "prefer")) for p in wanted["paths"]}, (sessions[name], wanted))
    devices = {one["name"]: one for one in status["devices"]}
    check(set(devices) == {"vol0", *files.devices}, set(devices))
    for name, wanted in files.devices.items():
        check(devices[name]["access"] == wanted["access"], (devices[name], wanted))


print(f"RNBD_SEED={SEED}")
counts, kinds = {}, {}
with Lab() as lab:
    rng = random.Random(SEED)
    files = Files(lab, rng)
    server = lab.server(list(files.exports.values()), port=files.port, heartbeat=PATIENT["heartbeat"])
    client = lab.client(server, {"vol0": {}}, session_options=PATIENT)
    judge = Judge(lab, lab.uri("vol0"), blocks=512)
    session = next(s for s in server.status()["sessions"] if s["name"] == "host-a")["id"]
    requests = 0
    for round_number in range(ROUNDS):
        for daemon, edits, write, verify in (
                (server, Files.SERVER_EDITS, files.server_files, check_server),
                (client, Files.CLIENT_EDITS, files.client_files, check_client)):
            for edit in rng.choices(edits, k=rng.randrange(1, 5)):
                edit(files)
            write_config(daemon, *write())
            how, changed = apply(daemon, rng)
            counts[how] = counts.get(how, 0) + 1
            for one in changed:
                kind = f"{one['object']} {one['change']}"
                kinds[kind] = kinds.get(kind, 0) + 1
            verify(daemon, files)
        figures = judge.mark()  # fails if a request did, or a block was not what it had to be
        requests += figures["reads"] + figures["writes"]
        ours = [s for s in server.status()["sessions"] if s["name"] == "host-a"]
        check([s["id"] for s in ours] == [session], "host-a is the session it was")
        mine = next(s for s in client.status()["sessions"] if s["name"] == "host-a")
        check(all(p["reconnects"] == 0 and p["state"] == "connected" for p in mine["paths"]), mine)
        vol0 = next(d for d in client.status()["devices"] if d["name"] == "vol0")
        check(vol0["errors"] == 0 and vol0["connections"] == 1, vol0)
    judge.wait_for_progress()
    judge.finish()
    print(f"{ROUNDS} rounds, {requests} verified requests; applied by " +
          ", ".join(f"{how}: {count}" for how, count in sorted(counts.items())))
    print("; ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items())))
