// The texts of the kernel's attributes, and the parsing of what is written to them. Pure.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace rnbd {

// Compares as sysfs does: one newline at the end of the text is ignored.
bool attribute_text_is(std::string_view text, std::string_view word) noexcept;
// The text without the white space around it.
std::string_view stripped(std::string_view text) noexcept;

// A whole decimal number with an optional sign and one newline.
// ERRORS: EINVAL (anything else), ERANGE (more than 32 bits).
std::expected<int, int> parse_attribute_int(std::string_view text) noexcept;
// A whole number that is not negative: "0x" hexadecimal, "0" octal, else decimal; one newline.
// ERRORS: EINVAL, ERANGE (more than 64 bits).
std::expected<std::uint64_t, int> parse_attribute_unsigned(std::string_view text) noexcept;

// "ip:10.0.0.1", "ip:fe80::1"; host: numeric, without brackets.
std::string attribute_address(std::string_view host);

struct AttributeAddress {
    std::string source;       // "HOST"; empty: the system's choice
    std::string destination;  // "HOST" without brackets
};
// "[SRC@]DST" or "[SRC,]DST", each "ip:ADDRESS" or "gid:GID".
// ERRORS: EINVAL (not of this form), ENODEV (gid: none of our fabrics has such addresses).
std::expected<AttributeAddress, int> parse_attribute_path(std::string_view text);

// "Usage: echo 1 > NAME\n": the text of most writable attributes.
std::string usage_of_one(std::string_view name);

}  // namespace rnbd
