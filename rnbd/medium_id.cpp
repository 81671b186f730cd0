#include "rnbd/medium_id.h"

#include <uuid/uuid.h>

#include <cstring>

namespace rnbd {
namespace {

constexpr std::size_t life_offset = 16;
constexpr std::size_t number_offset = 24;

}  // namespace

std::string to_text(const Uuid& uuid) {
    if (uuid == Uuid{}) return {};
    char text[UUID_STR_LEN];
    ::uuid_unparse_lower(uuid.data(), text);
    return text;
}

std::optional<Uuid> parse_uuid(std::string_view text) {
    Uuid uuid;
    const std::string terminated(text);
    if (::uuid_parse(terminated.c_str(), uuid.data()) != 0 || uuid == Uuid{}) return std::nullopt;
    return uuid;
}

bool MediumId::rules_out(const MediumId& found) const noexcept {
    if (!known() || !found.known()) return false;
    const bool both_named = uuid != Uuid{} && found.uuid != Uuid{};
    if (both_named) return uuid != found.uuid;
    if (life != 0 && life == found.life) return number != found.number;
    // A number of a life that has ended tells nothing, a name that is missing does.
    return uuid != Uuid{};
}

MediumId MediumId::load(const std::byte* from) noexcept {
    MediumId id;
    std::memcpy(id.uuid.data(), from, id.uuid.size());
    id.life = rtrs::load_le64(from + life_offset);
    id.number = rtrs::load_le64(from + number_offset);
    return id;
}

void MediumId::store(std::byte* to) const noexcept {
    std::memcpy(to, uuid.data(), uuid.size());
    rtrs::store_le64(to + life_offset, life);
    rtrs::store_le64(to + number_offset, number);
}

}  // namespace rnbd
