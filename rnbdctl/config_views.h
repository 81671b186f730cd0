// The documents of `config` as text, and their exit codes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "rnbdctl/exit_codes.h"

namespace rnbd {

std::string config_view(const nlohmann::json& document);
// For questions that change nothing in any case.
std::string config_look_view(const nlohmann::json& document);
// failed: the files are wrong, or something could not be done; conflict: something is in use.
CtlExit config_exit(const nlohmann::json& document);

}  // namespace rnbd
