// The arguments of a command, taken out one by one; what is left over is an error.
//
//   ControlArguments arguments(document);
//   const std::string name = arguments.text("export", ControlArguments::Need::required);
//   const bool force = arguments.flag("force");
//   if (const auto failure = arguments.failure()) return reply.fail(failure->code, ...);
//
// The first thing that is wrong is kept. THREAD: any one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "daemon/control_protocol.h"
#include "rtrs/base/instant.h"

namespace rnbd {

class ControlArguments {
  public:
    enum class Need : std::uint8_t { optional, required };

    explicit ControlArguments(const nlohmann::json& arguments) : left_(arguments) {}

    // Empty if it is absent.
    std::string text(const char* key, Need need = Need::optional);
    // False if it is absent.
    bool flag(const char* key);
    std::optional<std::uint64_t> number(const char* key);
    // Seconds, min..max; the default if it is absent.
    rtrs::Duration seconds(const char* key, rtrs::Duration if_absent, rtrs::Duration max);
    // null if it is absent.
    nlohmann::json object(const char* key, Need need = Need::optional);

    // Of what was asked for, then of what was not.
    std::optional<ControlFailure> failure();

  private:
    std::optional<nlohmann::json> take(const char* key, Need need, const char* expected);
    void wrong(const std::string& what);

    nlohmann::json left_;
    std::optional<ControlFailure> failure_;
};

}  // namespace rnbd
