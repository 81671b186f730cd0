// The views of paths, policy and explain.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "rnbdctl/member_text.h"
#include "rnbdctl/table.h"
#include "rnbdctl/units.h"
#include "rnbdctl/views.h"

namespace rnbd {
namespace {

using namespace members;
using Align = Table::Align;

std::vector<Table::Column> path_columns() {
    return {{"PATH"},
            {"STATE"},
            {"AGE", Align::right},
            {"NEXT"},
            {"PRIORITY", Align::left, 4},
            {"IN FLIGHT", Align::right, 3},
            {"SENT", Align::right, 9},
            {"DONE", Align::right, 10},
            {"FAILED OVER", Align::right, 7},
            {"RETRIED", Align::right, 8},
            {"STALE", Align::right, 12},
            {"RECONNECTS", Align::right, 2},
            {"P50", Align::right, 5},
            {"P99", Align::right, 1},
            {"MAX", Align::right, 11},
            {"HEARTBEAT", Align::right, 6},
            {"REASON"}};
}

// "3/1": connected again, failed attempts.
std::string reconnects(const json& path) {
    return dash(count(path, "reconnects")) + "/" + dash(count(path, "reconnects_failed"));
}

std::vector<std::string> path_row(const json& path) {
    return {word(path, "label"),
            word(path, "state"),
            age(path, "age_s"),
            next(path),
            word(path, "priority"),
            count(path, "in_flight"),
            count(path, "sent"),
            count(path, "completed"),
            count(path, "failed_over"),
            count(path, "retried"),
            count(path, "stale"),
            reconnects(path),
            latency(path, "request_p50_us"),
            latency(path, "request_p99_us"),
            latency(path, "request_max_us"),
            latency(path, "latency_us"),
            word(path, "reason")};
}

std::size_t paths_connected(const json& session) {
    std::size_t up = 0;
    for (const json& path : elements(session, "paths")) {
        if (member(path, "state") == "connected") ++up;
    }
    return up;
}

// --- explain

const char* meaning_of_protection(const json& session) {
    if (member(session, "protection").is_null()) {
        return "not known before a path to the server was up";
    }
    if (member(session, "protection") == "exactly-once") {
        return "a request goes on on another path at once; the server runs each once and refuses "
               "late attempts";
    }
    if (member(session, "protection") == "fenced") {
        return "the server knows no sequences: requests of a lost path wait until it has finished "
               "with that path";
    }
    return "unknown to this rnbdctl";
}

std::string stage_words(const json& request) {
    const json& stage = member(request, "stage");
    if (stage == "in_flight") return "in flight";
    if (stage == "no_path") return "held: no path is up";
    if (stage == "reopening") return "held: volume not open";
    if (stage == "lost_path") return "held: path was lost";
    if (stage == "settling") return "held: older attempts";
    if (stage == "payload") return "waits for its NBD client";
    if (stage == "own_share") return "waits for its connection";
    if (stage == "permit") return "waits for a permit";
    if (stage == "left_behind") return "waits for clients gone";
    if (stage == "answered") return "answered, not taken";
    return word(request, "stage");
}

// "path X is probed in 1.2 s"
std::string next_words(const json& next) {
    const std::string path = word(next, "path");
    const std::string in = short_age(next, "in_s");
    const json& event = member(next, "event");
    if (event == "probe") return fmt::format("path probed in {}", in);
    if (event == "answer") return "late, but its path answers: storage or link is slow";
    if (event == "path_dead") return fmt::format("path dead in {} if silent", in);
    if (event == "path_drained") return fmt::format("leaves {} when that has drained", dash(path));
    if (event == "connect") {
        return fmt::format("sent when {} is connected ({})", path,
                           in.empty() ? "being tried" : "next attempt in " + in);
    }
    if (event == "no_attempt") {
        return path.empty() ? "no path will be dialled: all are closed"
                            : fmt::format("path {} will not be dialled: it is closed", path);
    }
    if (event == "reopen") return "sent when the volume is open";
    if (event == "fence") return "goes on when the server has settled older attempts";
    if (event == "fail") return in == "0 ms" ? "fails now" : "fails at hold time in " + in;
    if (event == "held_for_ever") return "held for ever: no hold_time is set";
    const std::string or_else =
        in.empty() ? "" : fmt::format(" in {}, or loses its connection", in);
    if (event == "payload") return "its NBD client sends the rest of the data" + or_else;
    if (event == "own_answers") return "sent when its connection has fewer requests unanswered";
    if (event == "permit") return "sent when others' requests are answered: these have all permits";
    if (event == "left_behind") return "sent when what clients left behind that are gone has ended";
    if (event == "taken") return "its NBD client takes the answer" + or_else;
    return dash(word(next, "event"));
}

Table request_table(const json& document) {
    Table table({{"DEVICE", Align::left, 3},
                 {"OPERATION"},
                 {"OFFSET", Align::right},
                 {"BYTES", Align::right},
                 {"STAGE"},
                 {"AGE", Align::right},
                 {"PATH", Align::left, 1},
                 {"ATTEMPTS", Align::right, 2},
                 {"NEXT"}});
    for (const json& request : elements(document, "requests")) {
        std::string next;
        for (const json& one : elements(request, "next")) {
            next += (next.empty() ? "" : "; ") + next_words(one);
        }
        table.add({word(request, "device"), word(request, "operation"), word(request, "offset"),
                   word(request, "bytes"), stage_words(request), short_age(request, "age_s"),
                   word(request, "path"), word(request, "attempts"), std::move(next)});
    }
    return table;
}

// "1.25 s", "1m 30.5s": as it was set, where short_age() rounds.
std::string exactly(const json& settings, const char* key) {
    const json& value = member(settings, key);
    return value.is_number() ? setting_words(value.get<double>()) : "";
}

std::string held_for(const json& session) {
    const json& value = member(session, "hold_time_s");
    if (!value.is_number()) return "forever";
    return setting_words(value.get<double>());
}

std::string settings_line(const json& settings) {
    const auto or_else = [&](const char* key, const char* none) {
        const std::string text = exactly(settings, key);
        return text.empty() ? std::string(none) : text;
    };
    return fmt::format(
        "  hold_time {}, fail_fast_time {}; a request without answer for {} has its path probed, "
        "which is dead after {} of silence\n",
        or_else("hold_time_s", "forever"), or_else("fail_fast_time_s", "never"),
        or_else("request_deadline_s", "-"), or_else("probe_timeout_s", "-"));
}

}  // namespace

std::string paths_view(const json& document) {
    auto columns = path_columns();
    columns.insert(columns.begin(), Table::Column{"SESSION"});
    Table table(std::move(columns));
    for (const json& session : elements(document, "sessions")) {
        for (const json& path : elements(session, "paths")) {
            auto row = path_row(path);
            row.insert(row.begin(), word(session, "name"));
            table.add(std::move(row));
        }
    }
    return table.empty() ? "no paths\n" : table.text(0);
}

std::string path_view(const json& document) {
    const bool none = member(document, "paths_connected") == 0;
    return fmt::format("path {} of session {} is {}; {} of {} paths connected{}\n",
                       dash(word(document, "path")), dash(word(document, "session")),
                       dash(word(document, "state")), dash(word(document, "paths_connected")),
                       dash(word(document, "paths")), none ? ": no I/O goes on until one is" : "");
}

std::string policy_view(const json& document) {
    return fmt::format("{}: {}\n", dash(word(document, "session")), dash(word(document, "policy")));
}

std::string hold_view(const json& document) {
    const std::string limited = exactly(document, "limit_s");
    std::string text = limited.empty() ? "as configured\n"
                                       : fmt::format(
                                             "at most {}, until rnbd-client ends or "
                                             "rnbdctl hold --off\n",
                                             limited);
    Table table({{"SESSION"}, {"HOLDS FOR", Align::right}, {"FAILS IN", Align::right}});
    for (const json& session : elements(document, "sessions")) {
        const bool over = member(session, "hold_is_over") == true;
        table.add({word(session, "name"), held_for(session),
                   over ? "over" : short_age(session, "hold_left_s")});
    }
    return table.empty() ? text : text + table.text(0);
}

std::string explain_view(const json& document) {
    const json& device = member(document, "device");
    const json& session = member(document, "session");
    std::string text =
        fmt::format("Device {}: volume {} of session {}, {} for {}\n", dash(word(device, "name")),
                    dash(word(device, "volume")), dash(word(device, "session")),
                    dash(state(device)), dash(age(device, "age_s")));
    text += fmt::format("Session {}: {} for {}, {} of {} paths connected, policy {}\n",
                        dash(word(session, "name")), dash(state(session)),
                        dash(age(session, "age_s")), paths_connected(session),
                        elements(session, "paths").size(), dash(word(session, "policy")));
    text += settings_line(member(document, "settings"));
    text += fmt::format("Protection {}: {}\n", dash(word(session, "protection")),
                        meaning_of_protection(session));
    Table paths(path_columns());
    for (const json& path : elements(session, "paths")) paths.add(path_row(path));
    text += "\nPaths:\n" + paths.text(2);
    const Table requests = request_table(document);
    if (requests.empty()) return text + "\nRequests of the session: none is unanswered\n";
    return text + "\nRequests of the session, oldest first:\n" + requests.text(2);
}

}  // namespace rnbd
