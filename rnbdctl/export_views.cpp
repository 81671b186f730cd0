#include "rnbdctl/export_views.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "daemon/counted.h"
#include "rnbdctl/member_text.h"
#include "rnbdctl/units.h"
#include "rnbdctl/views.h"

namespace rnbd {

using nlohmann::json;
using Align = Table::Align;

namespace {

using namespace members;

// "/srv/vol1.img", "memory (delayed)"
std::string backing(const json& item) {
    const std::string path = word(item, "path");
    return (path.empty() ? word(item, "kind") : path) +
           (member(item, "delayed") == true ? " (delayed)" : "");
}

// Why a file that was there has not the size that is configured.
std::string other_size(const json& item) {
    const json& configured = member(item, "configured_size_bytes");
    const json& has = member(item, "size_bytes");
    if (!unsigned_number(configured) || !unsigned_number(has)) return "";
    const std::string text =
        fmt::format("its configured size is {}, but its file was there and keeps its own",
                    size_words(configured.get<std::uint64_t>()));
    if (has.get<std::uint64_t>() < configured.get<std::uint64_t>()) {
        return text + fmt::format("; rnbdctl exports resize {} {} makes it so large",
                                  word(item, "name"), configured.get<std::uint64_t>());
    }
    return text + fmt::format(
                      ", which is larger: expected {} in the configuration (to cut the "
                      "file would lose what lies beyond)",
                      has.get<std::uint64_t>());
}

// What there is to know of one, beside its row.
std::string details(const json& item) {
    std::string text;
    if (const auto uuid = word(item, "uuid"); !uuid.empty()) {
        text += fmt::format("{}: uuid {}\n", word(item, "name"), uuid);
    }
    if (!member(item, "allow").is_array()) return text;
    const std::string allowed = joined(elements(item, "allow"), [](const json& rule) {
        const std::string address = word(rule, "address");
        return fmt::format("{} ({}){}", dash(word(rule, "session")), dash(word(rule, "access")),
                           address.empty() ? "" : " from " + address);
    });
    return text + fmt::format("{}: may be opened by {}\n", word(item, "name"),
                              allowed.empty() ? "nobody" : allowed);
}

}  // namespace

std::string server_state_line(const json& document) {
    const std::string what = word(document, "state");
    if (what.empty() || what == "running") return "";
    const std::string since = age(document, "age_s");
    return fmt::format("rnbd-server is {}{}{}\n", what, since.empty() ? "" : " for " + since,
                       what == "draining"
                           ? ": no session comes in, nothing is opened, until rnbdctl drain --off"
                           : "");
}

Table export_table(const json& document) {
    Table table({{"NAME"},
                 {"SIZE", Align::right},
                 {"BLOCK", Align::right, 3},
                 {"IO", Align::left, 2},
                 {"BACKING"},
                 {"AGE", Align::right, 1},
                 {"NEXT"},
                 {"OPENED BY"},
                 {"STATE"}});
    for (const json& item : elements(document, "exports")) {
        std::string opens = joined(elements(item, "opens"), [](const json& open) {
            return fmt::format("{} ({})", word(open, "session"), word(open, "access"));
        });
        const std::string away = joined(elements(item, "away"), [](const json& session) {
            return fmt::format("{} (away)", session.is_string() ? dash(session) : "-");
        });
        if (!away.empty()) opens += (opens.empty() ? "" : ", ") + away;
        table.add({word(item, "name"), volume_size(item), block_size(item), word(item, "io"),
                   backing(item), age(item, "age_s"), next(item), opens, state(item)});
    }
    return table;
}

std::string export_remarks(const json& document, const char* indent) {
    std::string text;
    for (const json& item : elements(document, "exports")) {
        const std::string begin = fmt::format("{}{}: ", indent, word(item, "name"));
        const std::string configured = size(item, "configured_size_bytes");
        const bool another = member(item, "configured_size_bytes") != member(item, "size_bytes");
        if (!configured.empty() && another && member(item, "state") == "ready") {
            if (const auto why = other_size(item); !why.empty()) text += begin + why + "\n";
        }
        if (const json& last = member(item, "last_error"); last.is_object()) {
            text += fmt::format("{}{} failed, the last one {} ago: {} for {}: {}\n", begin,
                                counted(count(last, "errors"), "request"),
                                dash(short_age(last, "age_s")), word(last, "request"),
                                word(last, "session"), word(last, "error"));
        }
        for (const json& out : elements(item, "shut_out")) {
            text += fmt::format("{}session {} may not open it for {}\n", begin,
                                word(out, "session"), dash(short_age(out, "left_s")));
        }
    }
    return text;
}

std::string exports_view(const json& document) {
    const Table table = export_table(document);
    std::string text =
        server_state_line(document) + (table.empty() ? "no exports\n" : table.text(0));
    if (const auto& exports = elements(document, "exports"); exports.size() == 1) {
        text += details(exports.front());
    }
    return text + export_remarks(document, "");
}

std::string export_view(const json& document) {
    return fmt::format("export {} is {}\n", dash(word(document, "export")), dash(state(document)));
}

std::string export_for_nobody_view(const json& document) {
    return export_view(document) + "no session may open it: it was added without --allow\n";
}

std::string export_resize_view(const json& document) {
    return fmt::format("export {} has {} now\n", dash(word(document, "export")),
                       dash(size(document, "size_bytes")));
}

std::string export_evict_view(const json& document) {
    const std::string name = dash(word(document, "export"));
    const std::string session = dash(word(document, "session"));
    if (member(document, "out_s") == 0) {
        return fmt::format("session {} may open export {} again\n", session, name);
    }
    return fmt::format("export {} is taken from session {}, which may open it again in {}\n", name,
                       session, dash(short_age(document, "out_s")));
}

std::string drain_view(const json& document) {
    if (member(document, "draining") != true) return "sessions may come in\n";
    return fmt::format("draining until rnbdctl drain --off: {}, {} open, {} in flight\n",
                       counted(dash(count(document, "sessions")), "session"),
                       counted(dash(count(document, "opens")), "export"),
                       counted(dash(count(document, "in_flight")), "request"));
}

}  // namespace rnbd
