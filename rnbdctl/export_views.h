// The parts that several views share to show a server's exports. As views.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "rnbdctl/table.h"

namespace rnbd {

// A table with a row for each element of document["exports"].
Table export_table(const nlohmann::json& document);

// What the rows do not say: requests that failed, sessions that may not come back yet, sizes that
// differ from the configured ones. One line each, or empty.
std::string export_remarks(const nlohmann::json& document, const char* indent);

// The line above the output of a server that is about to end or accepts no sessions; else empty.
std::string server_state_line(const nlohmann::json& document);

}  // namespace rnbd
