#include "rnbd/medium_id.h"

#include <uuid/uuid.h>

#include <cstring>

#include "rtrs/base/bytes.h"

namespace rnbd {
namespace {

constexpr std::size_t life_offset = 16;
constexpr std::size_t number_offset = 24;

}  // namespace

std::string to_text(const Uuid& uuid) { return uuid == Uuid{} ? std::string() : uuid.text(); }

std::optional<Uuid> parse_uuid(std::string_view text) {
    Uuid uuid;
    const std::string terminated(text);
    auto* const bytes = reinterpret_cast<unsigned char*>(uuid.bytes.data());
    if (::uuid_parse(terminated.c_str(), bytes) != 0 || uuid == Uuid{}) return std::nullopt;
    return uuid;
}

bool MediumId::rules_out(const MediumId& found) const noexcept {
    if (!known() || !found.known()) return false;
    const bool both_named = uuid != Uuid{} && found.uuid != Uuid{};
    if (both_named) return uuid != found.uuid;
    if (life != 0 && life == found.life) return number != found.number;
    // A number of a life that has ended says nothing. But if the expected medium has a uuid, a
    // medium without one is another.
    return uuid != Uuid{};
}

MediumId MediumId::load(const std::byte* from) noexcept {
    MediumId id;
    std::memcpy(id.uuid.bytes.data(), from, id.uuid.bytes.size());
    id.life = rtrs::load_le64(from + life_offset);
    id.number = rtrs::load_le64(from + number_offset);
    return id;
}

void MediumId::store(std::byte* to) const noexcept {
    std::memcpy(to, uuid.bytes.data(), uuid.bytes.size());
    rtrs::store_le64(to + life_offset, life);
    rtrs::store_le64(to + number_offset, number);
}

}  // namespace rnbd
