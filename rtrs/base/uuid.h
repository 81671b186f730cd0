// A 16-byte identity, compared bytewise as the kernel does.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <string>

#include "rtrs/base/random.h"

namespace rtrs {

struct Uuid {
    std::array<std::byte, 16> bytes{};

    // Version 4, from the given random source.
    static Uuid random(Random& random) noexcept;
    // "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
    std::string text() const;

    friend bool operator==(const Uuid&, const Uuid&) = default;
    friend auto operator<=>(const Uuid&, const Uuid&) = default;
};

}  // namespace rtrs
