// Which medium a volume stands for, as its server says it and its client keeps it, so that a file
// or device that came in the place of another is not taken for it (Feature::medium).
//
// On the wire 32 bytes:
//    0  16  uuid     RFC 4122, in its byte order
//   16   8  life     of the server's process
//   24   8  number   of the medium, in that life
//
// THREAD: any one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rtrs/base/uuid.h"

namespace rnbd {

using rtrs::Uuid;

// As Uuid::text(), but empty for all zeroes, which stand for none.
std::string to_text(const Uuid& uuid);
// Of that form, in any case of letters. None for another form, and for all zeroes.
std::optional<Uuid> parse_uuid(std::string_view text);

struct MediumId {
    static constexpr std::uint32_t wire_bytes = 32;

    // The same for as long as the medium is there, whichever server has it.
    Uuid uuid{};
    // Both not 0: what can be told of it only until the server's process ends.
    std::uint64_t life = 0;
    std::uint64_t number = 0;

    bool known() const noexcept { return *this != MediumId{}; }
    // Of the one that is known: whether the other, which is found in its place, is not it. One that
    // has a uuid is not found as one that has none.
    bool rules_out(const MediumId& found) const noexcept;

    // from, to: wire_bytes.
    static MediumId load(const std::byte* from) noexcept;
    void store(std::byte* to) const noexcept;
    friend bool operator==(const MediumId&, const MediumId&) = default;
};

}  // namespace rnbd
