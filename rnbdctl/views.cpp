#include "rnbdctl/views.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "daemon/counted.h"
#include "rnbdctl/export_views.h"
#include "rnbdctl/member_text.h"
#include "rnbdctl/table.h"
#include "rnbdctl/units.h"

namespace rnbd {

using nlohmann::json;

namespace {

using Align = Table::Align;

using namespace members;

// Where it is served: the kernel's device first.
std::string nbd_addresses(const json& device) {
    const std::string kernel = word(member(device, "kernel"), "path");
    const json& nbd = member(device, "nbd");
    std::string sockets =
        nbd.is_array()
            ? joined(nbd,
                     [](const json& address) {
                         return address.is_string()
                                    ? terminal_text(address.get_ref<const std::string&>())
                                    : "-";
                     })
            : word(device, "nbd");
    if (kernel.empty()) return sockets;
    return sockets.empty() || nbd.empty() ? kernel : kernel + ", " + sockets;
}

// "tcp", "rdma/mlx5_0"
std::string fabric(const json& item) {
    const std::string device = word(item, "device");
    return device.empty() ? word(item, "fabric") : word(item, "fabric") + "/" + device;
}

bool is_server(const json& document) { return member(document, "daemon") == "rnbd-server"; }

std::string section(const char* title, const Table& table, const char* when_empty) {
    if (table.empty()) return fmt::format("\n{}: {}\n", title, when_empty);
    return fmt::format("\n{}:\n{}", title, table.text(2));
}

// "rnbd-server 0.1.0, pid 17, running for 3h 2m, draining for 5s, 4 workers"
std::string head_line(const json& document) {
    std::string line = fmt::format("{} {}", word(document, "daemon"), word(document, "version"));
    if (const auto pid = word(document, "pid"); !pid.empty()) line += ", pid " + pid;
    if (const auto up = age(document, "uptime_s"); !up.empty()) line += ", running for " + up;
    if (const auto what = word(document, "state"); !what.empty() && what != "running") {
        line += ", " + what;
        if (const auto since = age(document, "age_s"); !since.empty()) line += " for " + since;
    }
    if (const auto workers = document.find("workers");
        workers != document.end() && workers->size() > 1) {
        line += fmt::format(", {} workers", workers->size());
    }
    return line + "\n";
}

Table io_table(std::vector<Table::Column> first) {
    for (const char* title : {"READS", "READ", "WRITES", "WRITTEN", "ERRORS"})
        first.push_back({title, Align::right});
    return Table(std::move(first));
}

void add_io(std::vector<std::string>& row, const json& object) {
    row.insert(row.end(),
               {count(object, "reads"), size(object, "read_bytes"), count(object, "writes"),
                size(object, "write_bytes"), count(object, "errors")});
}

// --- The server ---

std::string server_session_view(const json& session) {
    std::string text = fmt::format(
        "\nSession {} from {}: {} for {}, queue depth {}, {} in flight\n", word(session, "name"),
        word(session, "peer"), word(session, "state"), age(session, "age_s"),
        word(session, "queue_depth"), word(session, "in_flight"));
    text += fmt::format(
        "  protection {}: {} late attempts refused, {} retries answered without running again, {} "
        "waited for an earlier attempt\n",
        dash(word(session, "protection")), dash(count(session, "stale")),
        dash(count(session, "answered")), dash(count(session, "waited")));
    Table paths({{"LOCAL"},
                 {"REMOTE"},
                 {"FABRIC"},
                 {"STATE"},
                 {"AGE", Align::right},
                 {"HEARD", Align::right}});
    for (const json& path : elements(session, "paths"))
        paths.add({word(path, "local"), word(path, "remote"), fabric(path), word(path, "state"),
                   age(path, "age_s"), age(path, "heartbeat_age_s")});
    if (!paths.empty()) text += paths.text(2);
    return text;
}

std::string server_status_view(const json& document) {
    std::string text = head_line(document);
    json open = json::array();
    json waiting = json::array();
    for (const json& listen : elements(document, "listen")) {
        (member(listen, "state") == "waiting" ? waiting : open).push_back(listen);
    }
    const auto place = [](const json& listen) {
        const bool kernel = member(listen, "clients") == "kernel";
        return fmt::format("{}:{}{}", fabric(listen), word(listen, "address"),
                           kernel ? " (kernel clients)" : "");
    };
    text += "listening on " + (open.empty() ? "nothing" : joined(open, place)) + "\n";
    for (const json& listen : waiting) {
        text += fmt::format("waiting to listen on {}: {} (for {}, next attempt in {})\n",
                            place(listen), word(listen, "reason"), age(listen, "age_s"),
                            age(listen, "next_attempt_s"));
    }
    text += section("Exports", export_table(document), "none");
    text += export_remarks(document, "  ");
    Table io = io_table({{"SESSION"}});
    for (const json& session : elements(document, "sessions")) {
        std::vector<std::string> row{word(session, "name")};
        add_io(row, session);
        io.add(std::move(row));
        text += server_session_view(session);
    }
    return text + section("Sessions", io, "none");
}

// --- The client ---

// Sum of a counter of the paths that a session has now.
std::string path_sum(const json& session, const char* key) {
    std::uint64_t sum = 0;
    for (const json& path : elements(session, "paths")) {
        const json& value = member(path, key);
        if (unsigned_number(value)) sum += value.get<std::uint64_t>();
    }
    return count_words(sum);
}

// Of the member `remote`.
std::string server_says(const json& remote) {
    if (const std::string reason = word(remote, "reason"); !reason.empty()) return reason;
    return fmt::format(
        "{} in flight of {}, {} refused, {} refused as late, {} failed in the storage; there p50 "
        "{}, p99 {}, longest {}",
        count(remote, "in_flight"), count(remote, "queue_depth"), count(remote, "refused"),
        count(remote, "stale"), count(remote, "storage_errors"), latency(remote, "p50_us"),
        latency(remote, "p99_us"), latency(remote, "max_us"));
}

std::string client_session_view(const json& session) {
    std::string text = fmt::format(
        "\nSession {}: {} for {}, queue depth {}, {} permits free, {} in flight, {} held\n",
        word(session, "name"), state(session), age(session, "age_s"), word(session, "queue_depth"),
        word(session, "permits_free"), word(session, "in_flight"), word(session, "held"));
    text +=
        fmt::format("  protection {}, policy {}: {} failed over, {} retried, {} refused as late\n",
                    dash(word(session, "protection")), dash(word(session, "policy")),
                    counted(fmt::format("{}", path_sum(session, "failed_over")), "request"),
                    path_sum(session, "retried"), path_sum(session, "stale"));
    const json& remote = member(session, "remote");
    if (remote.is_object()) text += "  the server: " + server_says(remote) + "\n";
    Table paths({{"DESTINATION"},
                 {"SOURCE", Align::left, 1},
                 {"FABRIC", Align::left, 2},
                 {"PRIORITY", Align::left, 4},
                 {"AGE", Align::right},
                 {"LATENCY", Align::right, 3},
                 {"ATTEMPTS", Align::right, 5},
                 {"NEXT"},
                 {"STATE"}});
    for (const json& path : elements(session, "paths"))
        paths.add({word(path, "destination"), word(path, "source"), fabric(path),
                   word(path, "priority"), age(path, "age_s"), latency(path, "latency_us"),
                   word(path, "attempts"), next(path), state(path)});
    if (!paths.empty()) text += paths.text(2);
    return text;
}

Table device_table(const json& document) {
    Table table({{"NAME"},
                 {"VOLUME"},
                 {"ACCESS", Align::left, 2},
                 {"SIZE", Align::right},
                 {"BLOCK", Align::right, 4},
                 {"NBD"},
                 {"CLIENTS", Align::right, 3},
                 {"AGE", Align::right, 1},
                 {"NEXT"},
                 {"STATE"}});
    for (const json& item : elements(document, "devices"))
        table.add({word(item, "name"),
                   fmt::format("{} at {}", word(item, "volume"), word(item, "session")),
                   word(item, "access"), volume_size(item), block_size(item), nbd_addresses(item),
                   word(item, "connections"), age(item, "age_s"), next(item), state(item)});
    return table;
}

// A line for a device that has lost something, nothing for the others.
std::string losses(const json& device) {
    const std::string caches = count(device, "lost_caches");
    if (caches.empty() || caches == "0") return "";
    return fmt::format("  {}: lost {} acknowledged writes that were not flushed, with {} {}\n",
                       word(device, "name"), count(device, "lost_writes"), caches,
                       caches == "1" ? "cache of the server" : "caches of the server");
}

// A line for a device that has requests of clients that are no more.
std::string left_behind(const json& device) {
    const std::string requests = count(device, "left_behind");
    if (requests.empty() || requests == "0") return "";
    return fmt::format(
        "  {}: {} changes of clients that have gone are in progress, {} requests of others wait "
        "for that\n",
        word(device, "name"), requests, count(device, "waiting_for_these"));
}

// A line for a device that the kernel should have and has not.
std::string kernel_fault(const json& device, const char* indent) {
    const json& kernel = member(device, "kernel");
    const std::string reason = word(kernel, "reason");
    if (!kernel.is_object() || reason.empty()) return "";
    return fmt::format("{}{}: kernel device {}: {}\n", indent, word(device, "name"),
                       word(kernel, "state"), reason);
}

// A line if block devices hang on a daemon that may wait for itself.
std::string shortage_fault(const json& document) {
    const json& devices = elements(document, "devices");
    const bool attached = std::ranges::any_of(
        devices, [](const json& device) { return member(device, "kernel").is_object(); });
    if (!attached || member(member(document, "memory_shortage"), "io_flusher") != false) return "";
    return "when this machine is short of memory its block devices may stand still: the daemon has "
           "no CAP_SYS_RESOURCE\n";
}

std::string client_status_view(const json& document) {
    std::string text = head_line(document) + shortage_fault(document);
    for (const json& session : elements(document, "sessions")) text += client_session_view(session);
    text += section("Devices", device_table(document), "none");
    for (const json& device : elements(document, "devices"))
        text += losses(device) + left_behind(device) + kernel_fault(device, "  ");
    Table io = io_table({{"DEVICE"}});
    for (const json& device : elements(document, "devices")) {
        std::vector<std::string> row{word(device, "name")};
        add_io(row, device);
        io.add(std::move(row));
    }
    return io.empty() ? text : text + section("Traffic", io, "none");
}

}  // namespace

std::string list_view(const json& document) {
    if (is_server(document)) {
        Table table({{"EXPORT"}, {"SIZE", Align::right}, {"OPENS", Align::right}, {"STATE"}});
        for (const json& item : elements(document, "exports"))
            table.add({word(item, "name"), volume_size(item),
                       std::to_string(elements(item, "opens").size()), state(item)});
        return server_state_line(document) + (table.empty() ? "no exports\n" : table.text(0));
    }
    Table table({{"DEVICE"}, {"SIZE", Align::right}, {"ACCESS"}, {"VOLUME"}, {"NBD"}, {"STATE"}});
    for (const json& item : elements(document, "devices"))
        table.add({word(item, "name"), volume_size(item), word(item, "access"),
                   fmt::format("{} at {}", word(item, "volume"), word(item, "session")),
                   nbd_addresses(item), state(item)});
    std::string text = table.empty() ? "no devices\n" : table.text(0);
    for (const json& item : elements(document, "devices")) text += kernel_fault(item, "");
    return text;
}

std::string status_view(const json& document) {
    return is_server(document) ? server_status_view(document) : client_status_view(document);
}

std::string sessions_view(const json& document) {
    const bool server = is_server(document);
    Table table({{"SESSION"},
                 {server ? "PEER" : "POLICY"},
                 {"PATHS", Align::right},
                 {"IN FLIGHT", Align::right},
                 {"PROTECTION"},
                 {"AGE", Align::right},
                 {"STATE"}});
    for (const json& session : elements(document, "sessions")) {
        std::size_t up = 0;
        const json& paths = elements(session, "paths");
        for (const json& path : paths) up += member(path, "state") == "connected" ? 1 : 0;
        table.add({word(session, "name"), word(session, server ? "peer" : "policy"),
                   fmt::format("{}/{}", up, paths.size()), count(session, "in_flight"),
                   word(session, "protection"), age(session, "age_s"), state(session)});
    }
    std::string text = table.empty() ? "no sessions\n" : table.text(0);
    for (const json& session : elements(document, "sessions")) {
        const json& remote = member(session, "remote");
        if (!remote.is_object()) continue;
        text += fmt::format("the server of {}: {}\n", word(session, "name"), server_says(remote));
    }
    return text;
}

std::string map_view(const json& document) {
    std::string text =
        fmt::format("{} is served at {}", word(document, "device"), nbd_addresses(document));
    const std::string state = word(document, "state");
    const std::string reason = word(document, "reason");
    if (!state.empty() && (state != "open" || !reason.empty())) {
        text += fmt::format("; {}: {}", state == "open" ? "but" : "not open yet", reason);
    }
    return text + "\n";
}

std::string unmap_view(const json& document) {
    return fmt::format("{} is no longer served\n", word(document, "device"));
}

std::string version_view(const json& document) {
    return fmt::format("{} {}\n", word(document, "daemon"), word(document, "version"));
}

std::string discover_view(const json& document) {
    Table table({{"NAME"},
                 {"SIZE", Table::Align::right},
                 {"BLOCK", Table::Align::right},
                 {"ACCESS"},
                 {"USERS", Table::Align::right},
                 {"STATE"}});
    for (const json& item : elements(document, "exports")) {
        table.add({word(item, "name"), volume_size(item), block_size(item), word(item, "access"),
                   word(item, "in_use"), word(item, "state")});
    }
    if (table.empty()) return "no exports for this session\n";
    return table.text(0);
}

}  // namespace rnbd
