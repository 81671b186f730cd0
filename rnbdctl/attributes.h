// The attributes of kernel RNBD's sysfs tree as text: the output of get, set and tree.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rnbd {

std::string get_view(const nlohmann::json& document);
std::string set_view(const nlohmann::json& document);
std::string tree_view(const nlohmann::json& document);

}  // namespace rnbd
