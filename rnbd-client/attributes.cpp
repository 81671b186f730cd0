#include "rnbd-client/attributes.h"

#include <fmt/format.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "daemon/attributes/machine.h"
#include "daemon/attributes/table.h"
#include "daemon/attributes/values.h"
#include "daemon/config/common.h"
#include "rtrs/base/host.h"

namespace rnbd {
namespace {

constexpr std::string_view session_folder = "class/rtrs-client/{session}/";
constexpr std::string_view path_folder = "class/rtrs-client/{session}/paths/{path}/";
constexpr std::string_view control_folder = "class/rnbd-client/ctl/";
constexpr std::string_view device_folder = "block/{device}/rnbd/";

using attribute_table::by;
using attribute_table::in;
using attribute_table::Lines;

// Reads as this text, whatever it is that has it.
auto text(std::string value) {
    return [value = std::move(value)](AttributeScope) -> AttributeValue { return value; };
}

// A number for every possible processor: "0 0 0 0 \n".
std::string zeroes_per_processor(std::size_t processors) {
    std::string zeroes;
    for (std::size_t i = 0; i < processors; ++i) zeroes += "0 ";
    return zeroes + "\n";
}

const char* const migration_remark =
    "A request is answered by the connection that it went by, and that one thread carries, so "
    "every number is 0.";
const char* const usage_of_add_path =
    "Usage: echo [<source addr>@]<destination addr> > add_path\n\n"
    "*addr ::= [ ip:<ipv4|ipv6> | gid:<gid> ]\n";
const char* const usage_of_map_device =
    "Usage: echo \"[dest_port=server port number] sessname=<name of the rtrs session> "
    "path=<[srcaddr@]dstaddr> [path=<[srcaddr@]dstaddr>] device_path=<full path on remote side> "
    "[access_mode=<ro|rw|migration>] [nr_poll_queues=<number of queues>]\" > map_device\n\n"
    "addr ::= [ ip:<ipv4> | ip:<ipv6> | gid:<gid> ]\n";

}  // namespace

ClientAttributes::ClientAttributes(Client& client, std::string socket_folder)
    : client_(client), socket_folder_(std::move(socket_folder)), waits_(client.clock()) {
    add_variables();
    add_session_attributes();
    add_path_attributes();
    add_statistics();
    add_map_device();
    add_device_commands();
    add_device_facts();
}

void ClientAttributes::add_variables() {
    tree_.add_variable("{session}", [this](AttributeScope) { return session_names(); });
    tree_.add_variable("{path}", [this](AttributeScope outer) { return path_names(outer[0]); });
    tree_.add_variable("{device}", [this](AttributeScope) { return device_names(); });
    tree_.add_variable("{name}@{session}", [this](AttributeScope) { return link_names(); });
}

void ClientAttributes::add_session_attributes() {
    tree_.add({.pattern = in(session_folder, "max_reconnect_attempts"),
               .read = [this](AttributeScope scope) { return read_reconnect_attempts(scope); },
               .write = by(this, &ClientAttributes::write_reconnect_attempts),
               .read_format = "`%d`; -1: for ever",
               .write_format = "-1 to 9999; else `EINVAL`"});
    for (const char* name : {"mpath_policy", "mp_policy"}) {
        tree_.add({.pattern = in(session_folder, name),
                   .read = [this](AttributeScope scope) { return read_policy(scope); },
                   .write = by(this, &ClientAttributes::write_policy),
                   .read_format = "`round-robin (RR: 0)`, `min-inflight (MI: 1)`, `min-latency "
                                  "(ML: 2)`, `service-time (ST: 3)`",
                   .write_format = "the number, the abbreviation or a text that begins with the "
                                   "name, in any case; else `EINVAL`",
                   .remark = std::string("The kernel has no `service-time`.") +
                             (name == std::string_view("mp_policy")
                                  ? " Its documentation has this name, its code `mpath_policy`."
                                  : "")});
    }
    tree_.add({.pattern = in(session_folder, "add_path"),
               .read = text(usage_of_add_path),
               .write = by(this, &ClientAttributes::add_path),
               .read_format = "usage",
               .write_format = "`[ip:SRC@]ip:DST`, or with a comma; done when it is connected. "
                               "`EINVAL`, `EEXIST`, or why it cannot be connected; then it is "
                               "gone again",
               .remark = "The port and the fabric are those of the session's first path. `gid:` is "
                         "`ENODEV`: no fabric has GIDs."});
}

void ClientAttributes::add_path_attributes() {
    const auto add_operation = [this](const char* name, Writes writer,
                                      const std::string& write_format, const std::string& remark) {
        tree_.add({.pattern = in(path_folder, name),
                   .read = text(usage_of_one(name)),
                   .write = by(this, writer),
                   .read_format = "usage",
                   .write_format = "`1`" + write_format + "; else `EINVAL`",
                   .remark = remark});
    };
    const Lines lines(tree_, path_folder, [this](AttributeScope scope) { return path(scope); });
    lines.add(
        "state",
        [](const PathPlace& it) {
            return it.path.state == rtrs::PathState::connected ? "connected" : "disconnected";
        },
        "`connected`, `disconnected`", "");
    add_operation("reconnect", &ClientAttributes::reconnect,
                  ": closes it and dials once, `ENOTCONN` if that fails; `EBUSY` while it is being "
                  "dialled or closed",
                  "It is dialled on after a failure.");
    add_operation("disconnect", &ClientAttributes::disconnect, ": closed until `reconnect`", "");
    add_operation("remove_path", &ClientAttributes::remove_path, ": closed and gone",
                  "`EBUSY` for the last path, which the kernel removes: requests would have no way "
                  "left.");
    tree_.add({.pattern = in(path_folder, "hca_name"),
               .read = [this](AttributeScope scope) { return read_hca_name(scope); },
               .read_format = "name",
               .remark = "Over TCP, the network interface that has the source address, as with the "
                         "kernel's devices without hardware (siw, rxe), which are made of one."});
    lines.add(
        "hca_port", [](const PathPlace&) { return "1"; }, "`%u`",
        "1: ports of a device are not told apart.");
    tree_.add({.pattern = in(path_folder, "src_addr"),
               .read = [this](AttributeScope scope) { return read_source(scope); },
               .read_format = "`ip:ADDRESS`",
               .remark = "The address that it was dialled from last. Before the first connection: "
                         "the configured one, or the unspecified address; the kernel has no path "
                         "then."});
    lines.add(
        "dst_addr",
        [](const PathPlace& it) { return attribute_address(rtrs::host_of(it.path.destination)); },
        "`ip:ADDRESS`", "");
    lines.add(
        "cur_latency",
        [](const PathPlace& it) { return fmt::format("{} ns", it.path.latency.count()); },
        "`%lld ns`", "");
}

void ClientAttributes::add_statistics() {
    const auto add = [this](const char* name, auto read, WritesNow reset,
                            const std::string& read_format, const std::string& remark) {
        tree_.add({.pattern = in(path_folder, "stats/") + name,
                   .read = std::move(read),
                   .write = by(this, reset),
                   .read_format = read_format,
                   .write_format = "`1` resets it; else `EINVAL`",
                   .remark = remark});
    };
    const std::string zeroes = zeroes_per_processor(possible_processors());
    add(
        "rdma", [this](AttributeScope scope) { return read_traffic(scope); },
        &ClientAttributes::reset_traffic,
        "six numbers: reads, bytes read, writes, bytes written, in flight, requests that it took "
        "over from lost paths",
        "The kernel counts what is in flight only under `min-inflight`. A reset does not change "
        "what `rnbdctl status` shows.");
    add(
        "reconnects", [this](AttributeScope scope) { return read_reconnects(scope); },
        &ClientAttributes::reset_reconnects, "two numbers: successful, failed", "");
    add("cpu_migration_from", text(zeroes), &ClientAttributes::reset_migrations,
        "a number and a space for each possible processor", migration_remark);
    add("cpu_migration_to", text(zeroes), &ClientAttributes::reset_migrations,
        "a number and a space for each possible processor", migration_remark);
    add("cpu_migration", text("from: " + zeroes + "to: " + zeroes),
        &ClientAttributes::reset_migrations, "the two above, behind `from:` and `to:`",
        std::string("The kernel's documentation has this name, its code the two above. ") +
            migration_remark);
    add("reset_all", text("echo 1 to reset all statistics\n"), &ClientAttributes::reset_all,
        "usage", "");
}

void ClientAttributes::add_map_device() {
    tree_.add({.pattern = in(control_folder, "map_device"),
               .read = text(usage_of_map_device),
               .write = by(this, &ClientAttributes::map_device),
               .read_format = "usage",
               .write_format =
                   "options, as in the usage; done when it is mapped. `EINVAL`, `EEXIST` (the "
                   "session has the volume), `ENXIO` (a new session without path), `ENOMEM` (more "
                   "than 6 paths), `ECONNABORTED` (the session has no path up), what the server "
                   "says (`ENOENT`, `EPERM`, `EACCES`), or why a path cannot be connected",
               .remark = "The device is `rnbdN`, served at the Unix socket `rnbdN.sock` beside the "
                         "control socket; `device_path` is the export's name. Paths are RDMA where "
                         "an RDMA device leads to the address, else TCP."});
    tree_.add({.pattern = in(control_folder, "devices/{name}@{session}"),
               .kind = Attribute::Kind::link,
               .read = [this](AttributeScope scope) { return link_target(scope); },
               .read_format = "to `block/rnbdN`",
               .remark = "`/` in the volume's name is `!`."});
}

void ClientAttributes::add_device_commands() {
    tree_.add({.pattern = in(device_folder, "unmap_device"),
               .read = text("Usage: echo <normal|force> > unmap_device\n"),
               .write = by(this, &ClientAttributes::unmap_device),
               .read_format = "usage",
               .write_format = "`normal` (`EBUSY` while it is in use) or `force`; `EALREADY` while "
                               "it is being unmapped; else `EINVAL`",
               .remark = "In use: NBD clients are connected, or the kernel's device is mounted."});
    tree_.add({.pattern = in(device_folder, "remap_device"),
               .read = text("Usage: echo <1> > remap_device\n"),
               .write = by(this, &ClientAttributes::remap_device),
               .read_format = "usage",
               .write_format = "`1`; `EALREADY` (open), `EBUSY` (never was open), `ENODEV` (being "
                               "unmapped), `ECONNABORTED` (no path is up), or what the server "
                               "says; else `EINVAL`",
               .remark = "The client opens by itself too; this does not wait for its next try."});
    tree_.add({.pattern = in(device_folder, "resize"),
               .read = text("Usage: echo <new size in sectors> > resize\n"),
               .write = by(this, &ClientAttributes::resize),
               .read_format = "usage",
               .write_format = "sectors of 512 bytes, decimal, `0x` or `0`; `ENOENT` unless it is "
                               "open; `ERANGE`; else `EINVAL`",
               .remark =
                   "As in the kernel it tells the client what size the volume has, and changes "
                   "nothing at the server. Our server tells by itself; a kernel's does not. "
                   "The next that the server says counts again."});
}

void ClientAttributes::add_device_facts() {
    const Lines lines(tree_, device_folder,
                      [this](AttributeScope scope) { return device(scope[0]); });
    tree_.add({.pattern = in(device_folder, "state"),
               .read = [this](AttributeScope scope) { return read_device_state(scope); },
               .read_format = "`init`, `open`, `closed`, `unmapped`",
               .remark = "While it is `closed` requests wait (`hold_time`); the kernel's fail."});
    lines.add("session", [](const Mapping* it) { return it->config().session; }, "name", "");
    lines.add(
        "mapping_path", [](const Mapping* it) { return it->config().volume; }, "name",
        "The export's name.");
    lines.add(
        "access_mode", [](const Mapping* it) { return to_word(it->config().access); },
        "`ro`, `rw`, `migration`", "");
    lines.add(
        "nr_poll_queues", [](const Mapping*) { return "0"; }, "`%d`",
        "0: nothing here polls. map_device takes the option, and nothing comes of it.");
}

}  // namespace rnbd
