// What a server's exports look like, where several views show them. As views.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "rnbdctl/table.h"

namespace rnbd {

// A row for each of document["exports"].
Table export_table(const nlohmann::json& document);

// What the rows do not say: requests that failed, who may not come back yet, sizes that are not the
// configured ones. A line each, or nothing.
std::string export_remarks(const nlohmann::json& document, const char* indent);

// Above what a server shows while it is about to end, or nobody comes in; else nothing.
std::string server_state_line(const nlohmann::json& document);

}  // namespace rnbd
