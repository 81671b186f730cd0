#include "rnbd-client/kernel_nbd/names.h"

#include <fmt/format.h>

namespace rnbd {
namespace {

constexpr std::string_view plain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789#+-.:=@_";

void append_escaped(std::string& to, std::string_view part) {
    for (std::size_t i = 0; i < part.size(); ++i) {
        const bool leading_dot = i == 0 && part[i] == '.';
        if (plain.find(part[i]) != std::string_view::npos && !leading_dot) {
            to += part[i];
        } else {
            to += fmt::format("\\x{:02x}", static_cast<unsigned char>(part[i]));
        }
    }
}

}  // namespace

std::string backend_identifier(std::string_view session, std::string_view volume) {
    std::string identifier = "rnbd/";
    append_escaped(identifier, session);
    identifier += '/';
    append_escaped(identifier, volume);
    return identifier;
}

}  // namespace rnbd
