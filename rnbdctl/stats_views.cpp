// The views of counters, rates and log levels.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "rnbdctl/member_text.h"
#include "rnbdctl/table.h"
#include "rnbdctl/views.h"

namespace rnbd {
namespace {

using namespace members;
using Align = Table::Align;

Table items_table(const json& document) {
    Table table({{"KIND"},
                 {"NAME"},
                 {"READS", Align::right},
                 {"READ", Align::right},
                 {"WRITES", Align::right},
                 {"WRITTEN", Align::right},
                 {"ERRORS", Align::right}});
    for (const json& item : elements(document, "items")) {
        table.add({word(item, "kind"), word(item, "name"), count(item, "reads"),
                   size(item, "read_bytes"), count(item, "writes"), size(item, "write_bytes"),
                   count(item, "errors")});
    }
    return table;
}

}  // namespace

std::string stats_view(const json& document) {
    const Table table = items_table(document);
    return fmt::format("{}: since {}\n", dash(word(document, "daemon")),
                       dash(short_age(document, "since_s"))) +
           (table.empty() ? "nothing to count\n" : table.text(0));
}

std::string stats_reset_view(const json& document) {
    return fmt::format("{} counts from zero\n", dash(word(document, "daemon")));
}

std::string log_view(const json& document) {
    Table table({{"AREA"}, {"LEVEL"}});
    for (const json& area : elements(document, "areas"))
        table.add({word(area, "name"), word(area, "level")});
    return fmt::format("{} says\n", dash(word(document, "daemon"))) + table.text(0);
}

std::string rates_view(const json& document) {
    const Table table = items_table(document);
    const std::string left_out = count(document, "left_out");
    return fmt::format("{}: per second, over {}\n", dash(word(document, "daemon")),
                       dash(short_age(document, "since_s"))) +
           (table.empty() ? "nothing to count\n" : table.text(0)) +
           (left_out.empty() ? "" : fmt::format("and {} more\n", left_out));
}

}  // namespace rnbd
