#include "rnbd-client/attributes_map.h"

#include <fmt/format.h>

#include <cerrno>
#include <optional>

#include "daemon/attributes/table.h"
#include "daemon/config/common.h"
#include "rtrs/base/host.h"

namespace rnbd {
namespace {

// Of a session and of a volume's path.
constexpr std::size_t name_bytes_max = 255;

using attribute_table::fail;

// More than any option takes, and fits an int with either sign.
constexpr std::uint64_t number_max = 1'000'000;

// Any C-style base, with a sign.
std::optional<int> parse_number(std::string_view text) {
    const bool negative = text.starts_with('-');
    if (negative) text.remove_prefix(1);
    const auto value = parse_attribute_unsigned(text);
    if (!value || *value > number_max) return std::nullopt;
    return negative ? -static_cast<int>(*value) : static_cast<int>(*value);
}

class Parser {
  public:
    explicit Parser(int processors) : processors_(processors) {}

    std::expected<void, AttributeError> take(std::string_view key, std::string_view value) {
        if (key == "sessname") return take_name(options.session, key, value);
        if (key == "device_path") return take_name(options.volume, key, value);
        if (key == "path") return take_path(value);
        if (key == "dest_port") return take_number(port_, key, value, 0, 65535);
        if (key == "nr_poll_queues") return take_number(unused_, key, value, -1, processors_);
        if (key != "access_mode") return fail(EINVAL, fmt::format("unknown option {}=", key));
        const auto access = config_access().parse(value);
        if (!access) return fail(EINVAL, "access_mode=: expected ro, rw or migration");
        options.access = *access;
        return {};
    }

    MapOptions options;

  private:
    static std::expected<void, AttributeError> take_name(std::string& name, std::string_view key,
                                                         std::string_view value) {
        if (value.size() > name_bytes_max) {
            return fail(EINVAL, fmt::format("{}=: longer than {} bytes", key, name_bytes_max));
        }
        name = value;
        return {};
    }

    static std::expected<void, AttributeError> take_number(int& number, std::string_view key,
                                                           std::string_view value, int least,
                                                           int most) {
        const auto parsed = parse_number(value);
        if (!parsed || *parsed < least || *parsed > most) {
            return fail(EINVAL, fmt::format("{}=: expected {} to {}", key, least, most));
        }
        number = *parsed;
        return {};
    }

    std::expected<void, AttributeError> take_path(std::string_view value) {
        if (options.paths.size() == MapOptions::paths_max) {
            return fail(ENOMEM, fmt::format("more than {} paths", MapOptions::paths_max));
        }
        auto address = parse_attribute_path(value);
        if (!address) {
            return fail(address.error(), fmt::format("path={}: {}", value,
                                                     address.error() == ENODEV
                                                         ? "there is no fabric with GIDs"
                                                         : "expected [ip:ADDRESS@]ip:ADDRESS"));
        }
        options.paths.push_back({.address = std::move(*address), .port = port_});
        return {};
    }

    int processors_;
    int port_ = MapOptions::port_default;
    int unused_ = 0;
};

}  // namespace

std::expected<MapOptions, AttributeError> MapOptions::parse(std::string_view text, int processors) {
    Parser parser(processors);
    text = stripped(text);
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(std::min(text.size(), word.size() + 1));
        if (word.empty()) continue;
        const auto equals = word.find('=');
        if (equals == std::string_view::npos || equals + 1 == word.size()) {
            return fail(EINVAL, fmt::format("{}: expected OPTION=VALUE", word));
        }
        if (auto taken = parser.take(word.substr(0, equals), word.substr(equals + 1)); !taken) {
            return std::unexpected(taken.error());
        }
    }
    if (parser.options.session.empty()) return fail(EINVAL, "sessname= is missing");
    if (parser.options.volume.empty()) return fail(EINVAL, "device_path= is missing");
    return std::move(parser.options);
}

std::string configured_path(const AttributeAddress& address, int port) {
    const auto destination =
        rtrs::join_host_port(address.destination, static_cast<std::uint16_t>(port));
    return address.source.empty() ? destination : address.source + "@" + destination;
}

}  // namespace rnbd
