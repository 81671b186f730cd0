// Identifies the medium (file or device) that a volume stands for. The server says it and the
// client keeps it, so that a medium that has replaced another one is not mistaken for it
// (Feature::medium).
//
// On the wire 32 bytes:
//    0  16  uuid     RFC 4122, in its byte order
//   16   8  life     of the server's process
//   24   8  number   of the medium, in that life
//
// THREAD: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rtrs/base/uuid.h"

namespace rnbd {

using rtrs::Uuid;

// As Uuid::text(), but empty if the uuid is all zeroes, which means that there is none.
std::string to_text(const Uuid& uuid);
// Parses the form of Uuid::text(), with upper or lower case letters. Returns nullopt for any other
// form, and for all zeroes.
std::optional<Uuid> parse_uuid(std::string_view text);

struct MediumId {
    static constexpr std::uint32_t wire_bytes = 32;

    // Stays the same for as long as the medium exists, whichever server has it.
    Uuid uuid{};
    // If both are not 0, they identify the medium only until the server's process ends.
    std::uint64_t life = 0;
    std::uint64_t number = 0;

    bool known() const noexcept { return *this != MediumId{}; }
    // Called on the expected medium: whether `found`, which is now in its place, is certainly
    // another one. If either is not known, nothing is ruled out. If a uuid is missing, the numbers
    // decide within one life; otherwise a medium without a uuid is not an expected one that has
    // one.
    bool rules_out(const MediumId& found) const noexcept;

    // from, to: wire_bytes long.
    static MediumId load(const std::byte* from) noexcept;
    void store(std::byte* to) const noexcept;
    friend bool operator==(const MediumId&, const MediumId&) = default;
};

}  // namespace rnbd
