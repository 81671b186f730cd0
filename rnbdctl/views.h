// The documents of the control protocol as text for people (docs/reference/control-protocol.md).
//
// A member that is absent, or has another type than documented, is shown as "-", so that a newer or
// older daemon is no reason to fail.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rnbd {

std::string list_view(const nlohmann::json& document);
std::string status_view(const nlohmann::json& document);
std::string map_view(const nlohmann::json& document);
std::string unmap_view(const nlohmann::json& document);
std::string log_view(const nlohmann::json& document);
std::string version_view(const nlohmann::json& document);
std::string paths_view(const nlohmann::json& document);
std::string path_view(const nlohmann::json& document);
std::string policy_view(const nlohmann::json& document);
std::string hold_view(const nlohmann::json& document);
std::string explain_view(const nlohmann::json& document);
std::string discover_view(const nlohmann::json& document);
std::string sessions_view(const nlohmann::json& document);
std::string exports_view(const nlohmann::json& document);
std::string export_view(const nlohmann::json& document);
// Of one that was added without an allow rule.
std::string export_for_nobody_view(const nlohmann::json& document);
std::string export_resize_view(const nlohmann::json& document);
std::string export_evict_view(const nlohmann::json& document);
std::string drain_view(const nlohmann::json& document);
std::string stats_view(const nlohmann::json& document);
std::string stats_reset_view(const nlohmann::json& document);
// For a document made by rates() (rnbdctl/rates.h).
std::string rates_view(const nlohmann::json& document);

}  // namespace rnbd
