#include "rnbdctl/config_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rnbdctl/member_text.h"
#include "rnbdctl/table.h"

namespace rnbd {
namespace {

using namespace members;

std::string words(const json& object, const char* key) {
    return joined(elements(object, key),
                  [](const json& one) { return word({{"word", one}}, "word"); });
}

// "allow, size; needs a restart: heartbeat; changed by rnbdctl"
std::string what_of(const json& change) {
    std::string text = words(change, "keys");
    const auto add = [&](const std::string& more) {
        if (!more.empty()) text += (text.empty() ? "" : "; ") + more;
    };
    const std::string restart = words(change, "restart_keys");
    if (!restart.empty()) add("needs a restart: " + restart);
    const std::string drift = word(change, "drift");
    if (!drift.empty())
        add(member(change, "change") == "unchanged" ? drift + " by rnbdctl, in no file"
                                                    : drift + " by rnbdctl");
    add(word(change, "conflict"));
    const std::string failure = word(change, "failure");
    if (!failure.empty()) add("failed: " + failure);
    const std::string loss = word(change, "loss");
    if (!loss.empty()) add("done, but " + loss);
    return text;
}

// key: "errors" or "warnings"; mark: before each.
std::string errors_text(const json& document, const char* key_of_list, const char* mark) {
    std::string text;
    for (const json& error : elements(document, key_of_list)) {
        text += mark + word(error, "file");
        if (member(error, "line") != 0)
            text += fmt::format(":{}:{}", word(error, "line"), word(error, "column"));
        const std::string key = word(error, "key");
        text += fmt::format("{}: {}\n", key.empty() ? "" : ": " + key, word(error, "text"));
    }
    return text;
}

// refused: of a document whose files have errors, or with changes that must not be made.
const char* sentence_of(const json& document, const char* refused) {
    const json& state = member(document, "state");
    if (state == "good") return "good";
    if (state == "same") return "the daemon is as it says";
    if (state == "differs") {
        const bool would_change = std::ranges::any_of(
            elements(document, "objects"),
            [](const json& one) { return member(one, "change") != "unchanged"; });
        return would_change ? "the daemon is not as it says"
                            : "the daemon is as it says, but for what rnbdctl did without --save";
    }
    if (state == "applied") return "applied";
    if (state == "incomplete") return "applied, but not all of it";
    if (state == "confirmed") return "confirmed";
    if (state == "refused") return refused;
    return "?";
}

std::string view(const json& document, const char* refused) {
    std::string text = fmt::format("{}: {}: {}\n", word(document, "daemon"), word(document, "file"),
                                   sentence_of(document, refused));
    text += errors_text(document, "errors", "  ");
    text += errors_text(document, "warnings", "  warning: ");
    Table table({{"OBJECT"}, {"NAME"}, {"CHANGE"}, {"WHAT"}});
    std::size_t unchanged = 0;
    for (const json& change : elements(document, "objects")) {
        const std::string what = what_of(change);
        if (member(change, "change") == "unchanged" && what.empty()) {
            ++unchanged;
            continue;
        }
        table.add({word(change, "object"), word(change, "name"), word(change, "change"), what});
    }
    if (!table.empty()) text += table.text(2);
    if (unchanged > 0)
        text += fmt::format("  {} {} unchanged\n", unchanged,
                            unchanged == 1 ? "object is" : "objects are");
    const std::string left = short_age(document, "confirm_left_s");
    if (!left.empty())
        text += fmt::format("  taken back in {}, unless rnbdctl config confirm comes\n", left);
    return text;
}

}  // namespace

std::string config_view(const json& document) {
    return view(document, "refused; nothing is changed");
}

std::string config_look_view(const json& document) {
    return view(document, "the configuration has errors");
}

CtlExit config_exit(const json& document) {
    const json& state = member(document, "state");
    const bool lossless = std::ranges::all_of(
        elements(document, "objects"), [](const json& one) { return word(one, "loss").empty(); });
    if (state == "incomplete" || !lossless) return CtlExit::failed;
    if (state != "refused") return CtlExit::ok;
    return elements(document, "errors").empty() ? CtlExit::conflict : CtlExit::failed;
}

}  // namespace rnbd
