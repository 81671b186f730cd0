"""Who may include whom: one row per room of the tree.

`may` lists the quoted includes that a room may have, as files or folders (ending in /). System
headers are free, but for those in `never` and those that belong to one room only.
"""

import re

from tidy import Report, read, tree

BASE = ["rtrs/base/"]
# What users of the transport see; the reactor and the fabrics are named where they are allowed.
PUBLIC = BASE + ["rtrs/client.h", "rtrs/server.h", "rtrs/fabric.h", "rtrs/heartbeat_times.h", "rtrs/limits.h",
                 "rtrs/messages.h", "rtrs/path_policy.h", "rtrs/session_terms.h", "rtrs/tag/matcher.h",
                 "rtrs/null_tracer.h", "rtrs/trace.h"]
BLOCK_PROTOCOL = ["rnbd/awaited_paths.h", "rnbd/catalog.h", "rnbd/fair_share.h", "rnbd/identity/", "rnbd/medium_id.h",
                  "rnbd/messages.h", "rnbd/remote_catalog.h", "rnbd/remote_session.h", "rnbd/remote_statistics.h",
                  "rnbd/remote_volume.h", "rnbd/request_in_pieces.h", "rnbd/statistics.h",
                  "rnbd/unflushed_writes.h"]
DAEMON = ["daemon/"]
# What is not of a daemon alone: command lines, the control socket's clients.
PROGRAM = ["daemon/attributes/client.h", "daemon/command_line_complaint.h", "daemon/control/client.h",
           "daemon/counted.h", "daemon/utf8.h", "daemon/version.h"]
SOCKETS_AND_RING = ["sys/socket.h", "netinet/", "arpa/", "liburing", "linux/io_uring.h", "sys/epoll.h",
                    "poll.h", "netdb.h", "spdlog/"]

# The longest matching room counts.
ROOMS = {
    "rtrs/": {"may": PUBLIC + ["rtrs/reactor.h", "rtrs/rdma_devices.h"]},
    # Addresses are text there, which arpa/inet.h reads and writes.
    "rtrs/base/": {"may": BASE, "never": [word for word in SOCKETS_AND_RING if word != "arpa/"]},
    "rtrs/wire/": {"may": BASE + ["rtrs/limits.h", "rtrs/wire/"], "never": SOCKETS_AND_RING},
    "rtrs/tag/": {"may": BASE + ["rtrs/tag/"], "never": SOCKETS_AND_RING},
    "rtrs/core/": {"may": PUBLIC + ["rtrs/core/", "rtrs/tag/", "rtrs/wire/"], "never": SOCKETS_AND_RING},
    "rtrs/reactor/": {"may": BASE + ["rtrs/reactor.h", "rtrs/reactor_group.h", "rtrs/reactor/"], "never": ["spdlog/"]},
    "rtrs/sockets/": {"may": BASE + ["rtrs/reactor.h", "rtrs/sockets/"], "never": ["spdlog/"]},
    "rtrs/fabric/tcp/": {
        "may": BASE + ["rtrs/fabric.h", "rtrs/fabrics.h", "rtrs/reactor.h", "rtrs/sockets/", "rtrs/fabric/tcp/"],
        "never": ["spdlog/"],
    },
    # A device that matches tags reads their header.
    "rtrs/fabric/verbs/": {
        "may": BASE + ["rtrs/fabric.h", "rtrs/fabrics.h", "rtrs/reactor.h", "rtrs/trace.h",
                       "rtrs/fabric/verbs/", "rtrs/sockets/address.h", "rtrs/tag/device.h",
                       "rtrs/wire/tag.h"],
        "never": ["spdlog/"],
    },
    # Public through rtrs/rdma_devices.h. Sockets ask the system's routes; nothing is sent.
    "rtrs/fabric/devices/": {
        "may": BASE + ["rtrs/fabric.h", "rtrs/rdma_devices.h", "rtrs/sockets/address.h"],
        "never": ["spdlog/"],
    },
    "rtrs/fabric/sim/": {"may": BASE + ["rtrs/fabric.h", "rtrs/fabric/sim/"], "never": ["spdlog/"]},
    "rtrs/fabric/fault/": {
        "may": BASE + ["rtrs/fabric.h", "rtrs/fabric/fault/"],
        "never": SOCKETS_AND_RING,
    },
    "rnbd/": {"may": PUBLIC + ["rtrs/rdma_devices.h", "rnbd/"], "never": SOCKETS_AND_RING},
    # Sockets are the machine's locks; nothing is sent.
    "rnbd/identity/": {"may": BASE + ["rnbd/identity/"]},
    "daemon/": {"may": BASE + ["rtrs/reactor.h", "rtrs/reactor_group.h"] + DAEMON},
    "daemon/config/": {
        "may": BASE + ["rtrs/heartbeat_times.h", "rtrs/reactor_group.h", "rnbd/messages.h", "daemon/config/", "daemon/log/level.h", "daemon/utf8.h"],
    },
    "daemon/log/": {"may": BASE + ["rtrs/trace.h", "daemon/log/", "daemon/utf8.h"]},
    "daemon/sockets/": {"may": BASE + ["rtrs/reactor.h", "rtrs/sockets/", "daemon/sockets/"]},
    "daemon/metrics/": {"may": BASE + ["rtrs/reactor.h", "rtrs/sockets/", "daemon/metrics/", "daemon/sockets/"]},
    "daemon/control/": {
        "may": BASE + ["rtrs/reactor.h", "daemon/config/", "daemon/control/", "daemon/log/", "daemon/sockets/"],
    },
    "daemon/attributes/": {"may": BASE + ["daemon/attributes/", "daemon/control/"]},
    "daemon/reload/": {
        "may": BASE + ["daemon/config/", "daemon/control/", "daemon/counted.h", "daemon/log/", "daemon/reload/"],
    },
    "rnbd-server/": {
        "may": PUBLIC + ["rtrs/rdma_devices.h", "rtrs/reactor.h", "rnbd/catalog.h", "rnbd/medium_id.h", "rnbd/messages.h", "rnbd/statistics.h",
                "rnbd-server/"] + DAEMON,
    },
    "rnbd-server/state/": {
        "may": BASE + ["rtrs/reactor.h", "rnbd/medium_id.h", "daemon/log/log.h", "rnbd-server/state/",
                       "rnbd-server/storage/cache_epoch.h", "rnbd-server/storage/wait_budget.h",
                       "rnbd-server/storage/synchronize_folder.h"],
        "never": ["spdlog/"],
    },
    "rnbd-server/storage/": {
        "may": BASE + ["rtrs/reactor.h", "rnbd/medium_id.h", "rnbd-server/storage.h",
                       "rnbd-server/storage_options.h", "rnbd-server/storage/"],
        "never": ["spdlog/"],
    },
    "rnbd-client/": {
        "may": PUBLIC + ["rtrs/rdma_devices.h", "rtrs/reactor.h", "rnbd-client/"] + BLOCK_PROTOCOL + DAEMON,
    },
    "rnbd-client/nbd/": {
        "may": BASE + ["rtrs/reactor.h", "rtrs/sockets/", "rtrs/trace.h", "daemon/sockets/unix_listener.h",
                       "rnbd-client/device.h", "rnbd-client/nbd/"],
        "never": ["spdlog/"],
    },
    "rnbd-client/kernel_nbd/": {
        "may": BASE + ["rtrs/reactor.h", "rtrs/trace.h", "rnbd-client/device.h", "rnbd-client/nbd/",
                       "rnbd-client/kernel_nbd/"],
        "never": ["spdlog/"],
    },
    "librnbd/": {
        "may": PUBLIC + ["rtrs/rdma_devices.h", "rtrs/reactor.h", "librnbd/",
                         "daemon/config/types.h", "daemon/config/nearest_word.h"] + BLOCK_PROTOCOL,
        "never": SOCKETS_AND_RING + ["yaml-cpp/"],
    },
    # In C, as anybody would write them.
    "nbdkit/": {"may": []},
    "fio-engine/": {"may": ["fio-engine/"]},
    "rnbdctl/": {"may": PROGRAM + ["rtrs/base/descriptor.h", "rtrs/base/instant.h", "rtrs/base/seconds.h", "rtrs/base/whole_file.h",
                            "daemon/config/", "rnbdctl/"],
                 "never": ["spdlog/", "liburing"]},
    "rnbd-sysfs/": {"may": PROGRAM + ["rnbd-sysfs/"], "never": ["spdlog/", "liburing"]},
}
# The protocol itself needs no I/O: tests and fuzzers link nothing else.
PURE = {"rnbd-client/nbd/handshake": BASE, "rnbd-client/nbd/transmission": BASE,
        "rnbd-client/nbd/wire": BASE}
# A header outside of this project -> the only rooms that may include it.
ONLY_IN = {
    "liburing": ["rtrs/reactor/"],
    "linux/io_uring.h": ["rtrs/reactor/"],
    "infiniband/": ["rtrs/fabric/verbs/"],
    "rdma/": ["rtrs/fabric/verbs/"],
    "yaml-cpp/": ["daemon/config/yaml.cpp", "daemon/config/yaml_complaint.cpp"],
    "spdlog/": ["daemon/log/log.cpp"],
    "libnbd.h": ["rnbd-server/storage/"],
    "isa-l": ["rtrs/fabric/tcp/"],
    "uuid/": ["rnbd/", "rnbd-server/storage/"],
    "systemd/": ["daemon/lifecycle.cpp", "daemon/watchdog.cpp"],
    "netlink/": ["rnbd-client/kernel_nbd/"],
    "fuse": ["rnbd-sysfs/"],
}
# A header of ours -> besides tests and examples, the only files or rooms that may include it.
DOORS = {
    "rtrs/fabrics.h": ["rnbd-server/main.cpp", "rnbd-client/main.cpp", "librnbd/session_fabrics.cpp",
                       "rtrs/fabric/"],
    "rnbd/remote_session_inside.h": ["rnbd/"],
    "rnbd/remote_volume_inside.h": ["rnbd/"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def matches(name, patterns):
    return any(name.startswith(p) if p.endswith("/") else name == p for p in patterns)


def check_ours(report, file, room, include):
    doors = DOORS.get(include)
    if doors is not None:
        if not matches(file, doors):
            report.add(file, f'includes "{include}", which only {", ".join(doors)} may')
        return
    pure = next((may for stem, may in PURE.items() if file.startswith(stem + ".")), None)
    may = pure + ["rnbd-client/nbd/handshake.h", "rnbd-client/nbd/transmission.h",
                  "rnbd-client/nbd/wire.h"] if pure else room["may"]
    if not matches(include, may):
        report.add(file, f'includes "{include}"; from there only {", ".join(may)}')


def check_foreign(report, file, room, include):
    if any(include.startswith(word) for word in room.get("never", [])):
        report.add(file, f"includes <{include}>, which this room never does")
    for word, rooms in ONLY_IN.items():
        if include.startswith(word) and not matches(file, rooms):
            report.add(file, f"includes <{include}>, which only {', '.join(rooms)} may")


report = Report()
checked = 0
for file in tree():
    if not file.endswith((".h", ".cpp")) or file.startswith(("tests/", "docs/examples/")):
        continue
    rooms = [room for room in ROOMS if file.startswith(room)]
    if not rooms:
        report.add(file, "is in a room that this check does not know")
        continue
    # What is directly in one of these is not the folders below it.
    name = max(rooms, key=len)
    if name in ("rtrs/", "daemon/") and file.count("/") > 1:
        report.add(file, "is in a room that this check does not know")
        continue
    checked += 1
    for ours, foreign in INCLUDE.findall(read(file)):
        # fabrics.h is the door itself: it sees the reactor.
        check_ours(report, file, ROOMS[name], ours) if ours else check_foreign(
            report, file, ROOMS[name], foreign)
        if ours.startswith("tests/"):
            report.add(file, f'includes "{ours}"')
report.finish(checked)
