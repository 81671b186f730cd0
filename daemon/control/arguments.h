// The arguments of a command. They are taken out one by one; an argument that is left over is an
// error.
//
//   ControlArguments arguments(document);
//   const std::string name = arguments.text("export", ControlArguments::Need::required);
//   const bool force = arguments.flag("force");
//   if (const auto failure = arguments.failure()) return reply.fail(failure->code, ...);
//
// The first error is kept. THREAD: any; one at a time.
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
    // required: it must be there, and a text must not be empty. present: it must be there.
    enum class Need : std::uint8_t { optional, present, required };

    explicit ControlArguments(const nlohmann::json& arguments) : left_(arguments) {}

    // Empty if the argument is absent. expected: what the error says that was expected.
    std::string text(const char* key, Need need = Need::optional,
                     std::string_view expected = "a text");
    // A word that parse() knows. parse: takes a std::string_view, returns a std::optional. Nullopt
    // if the argument is absent.
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
    // False if the argument is absent.
    bool flag(const char* key);
    std::optional<std::uint64_t> number(const char* key);
    // A duration in seconds, 0..max; if_absent if the argument is absent.
    rtrs::Duration seconds(const char* key, rtrs::Duration if_absent, rtrs::Duration max);
    // null if the argument is absent.
    nlohmann::json object(const char* key, Need need = Need::optional);
    // The argument unchanged, for a caller that has rules of its own for it.
    std::optional<nlohmann::json> any(const char* key);

    // The first error in the arguments that were asked for; if there is none, the first argument
    // that was not asked for.
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
