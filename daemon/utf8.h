// Recognises UTF-8, by the table of RFC 3629, section 4.
#pragma once

#include <cstddef>
#include <string_view>

namespace rnbd {

// The length in bytes of the UTF-8 sequence at the start of the text, 1 to 4; 0 if there is none.
std::size_t utf8_bytes(std::string_view text) noexcept;

}  // namespace rnbd
