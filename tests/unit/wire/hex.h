// Bytes as the tests write them: "bd 1b 00 02", or "ff*8" for a run.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "rtrs/base/bytes.h"

namespace test {

using ByteVector = std::vector<std::byte>;

inline ByteVector hex(const std::string& text) {
    ByteVector bytes;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        const auto value =
            static_cast<std::byte>(std::strtoul(word.substr(0, 2).c_str(), nullptr, 16));
        const std::size_t count = word.size() > 3 ? std::strtoul(word.c_str() + 3, nullptr, 10) : 1;
        bytes.insert(bytes.end(), count, value);
    }
    return bytes;
}

// What emit() makes of a buffer full of garbage: padding that is not written shows.
template <typename Message>
ByteVector emitted(const Message& message, std::size_t bytes) {
    ByteVector buffer(bytes, std::byte{0xee});
    message.emit(buffer);
    return buffer;
}

inline ByteVector with(ByteVector bytes, std::size_t at, const ByteVector& replacement) {
    for (std::size_t i = 0; i < replacement.size(); ++i) bytes.at(at + i) = replacement[i];
    return bytes;
}

inline ByteVector first(const ByteVector& bytes, std::size_t count) {
    return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace test
