#include "rtrs/base/uuid.h"

#include "rtrs/base/bytes.h"

namespace rtrs {

Uuid Uuid::random(Random& random) noexcept {
    Uuid uuid;
    store_le64(uuid.bytes.data(), random.next());
    store_le64(uuid.bytes.data() + 8, random.next());
    uuid.bytes[6] = (uuid.bytes[6] & std::byte{0x0f}) | std::byte{0x40};  // RFC 4122: version 4
    uuid.bytes[8] = (uuid.bytes[8] & std::byte{0x3f}) | std::byte{0x80};  // RFC 4122: variant 1
    return uuid;
}

std::string Uuid::text() const {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        const auto value = std::to_integer<unsigned>(bytes[i]);
        text += digits[value >> 4];
        text += digits[value & 15];
    }
    return text;
}

}  // namespace rtrs
