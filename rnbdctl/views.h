// The documents of the control protocol as text for people (docs/reference/control-protocol.md).
//
// A member that is absent or of another type than documented shows as "-": a newer or older daemon
// is no reason to fail.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rnbd {

std::string list_view(const nlohmann::json& document);
std::string status_view(const nlohmann::json& document);
std::string map_view(const nlohmann::json& document);
std::string unmap_view(const nlohmann::json& document);
std::string version_view(const nlohmann::json& document);
std::string paths_view(const nlohmann::json& document);
std::string path_view(const nlohmann::json& document);
std::string policy_view(const nlohmann::json& document);
std::string explain_view(const nlohmann::json& document);

}  // namespace rnbd
