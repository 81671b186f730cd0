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
#include <string_view>
#include <type_traits>
#include <vector>

#include "daemon/control/protocol.h"
#include "rtrs/base/instant.h"

namespace rnbd {

class ControlArguments {
  public:
    // required: there, and a text is not empty. present: there.
    enum class Need : std::uint8_t { optional, present, required };

    explicit ControlArguments(const nlohmann::json& arguments) : left_(arguments) {}

    // Empty if it is absent. expected: what to say if it is not as it has to be.
    std::string text(const char* key, Need need = Need::optional,
                     std::string_view expected = "a text");
    // What parse() knows, a std::optional of a std::string_view. Nothing if it is absent.
    template <typename Parse>
    std::invoke_result_t<Parse&, std::string_view> word(const char* key, Parse parse,
                                                        std::string_view expected,
                                                        Need need = Need::optional) {
        const auto given = take(key, need, expected);
        if (!given) return std::nullopt;
        if (given->is_string()) {
            if (auto known = parse(given->template get_ref<const std::string&>())) return known;
        }
        unknown_word(key, *given, expected);
        return std::nullopt;
    }
    // False if it is absent.
    bool flag(const char* key);
    std::optional<std::uint64_t> number(const char* key);
    // Seconds, min..max; the default if it is absent.
    rtrs::Duration seconds(const char* key, rtrs::Duration if_absent, rtrs::Duration max);
    // null if it is absent.
    nlohmann::json object(const char* key, Need need = Need::optional);
    // Whatever it is, for who has rules of its own for it.
    std::optional<nlohmann::json> any(const char* key);

    // Of what was asked for, then of what was not.
    std::optional<ControlFailure> failure();

  private:
    std::optional<nlohmann::json> take(const char* key, Need need, std::string_view expected);
    void wrong(std::string_view key, std::string_view expected);
    void unknown_word(std::string_view key, const nlohmann::json& found, std::string_view expected);

    nlohmann::json left_;
    std::vector<std::string> asked_for_;  // to be named if something else was given
    std::optional<ControlFailure> failure_;
};

}  // namespace rnbd
