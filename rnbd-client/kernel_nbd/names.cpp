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

// Where "-partN" begins at the end of a name; npos: it does not end so.
std::size_t partition_suffix(std::string_view name) {
    const auto last = name.find_last_not_of("0123456789");
    if (last == std::string_view::npos || last + 1 == name.size()) return std::string_view::npos;
    const std::string_view rest = name.substr(0, last + 1);
    return rest.ends_with("-part") ? rest.size() - 5 : std::string_view::npos;
}

}  // namespace

std::string backend_identifier(std::string_view session, std::string_view volume) {
    std::string identifier = "rnbd/";
    append_escaped(identifier, session);
    identifier += '/';
    const auto suffix = partition_suffix(volume);
    append_escaped(identifier, volume.substr(0, suffix));
    if (suffix != std::string_view::npos) {
        identifier += "\\x2d";
        append_escaped(identifier, volume.substr(suffix + 1));
    }
    return identifier;
}

}  // namespace rnbd
