#include "rnbd-server/writers.h"

#include <algorithm>
#include <utility>

namespace rnbd {

bool Writers::is_out(Id id) const noexcept { return std::ranges::find(out_, id) != out_.end(); }

bool Writers::opens(Id id, const std::string& session) {
    const auto found = std::ranges::find(known_, id, &Known::id);
    if (found != known_.end()) {
        found->session = session;
        return false;
    }
    if (known_.size() == known_max) {
        put_out(known_.front().id);
        known_.erase(known_.begin());
    }
    known_.push_back({id, session});
    return true;
}

bool Writers::closes(Id id) {
    return std::erase_if(known_, [id](const Known& one) { return one.id == id; }) > 0;
}

std::vector<Writers::Known> Writers::writes(std::span<const Id> who_have_it_open) {
    std::vector<Known> away;
    std::erase_if(known_, [&](Known& one) {
        if (std::ranges::find(who_have_it_open, one.id) != who_have_it_open.end()) return false;
        put_out(one.id);
        away.push_back(std::move(one));
        return true;
    });
    return away;
}

void Writers::put_out(Id id) {
    if (out_.size() == out_max) out_.erase(out_.begin());
    out_.push_back(id);
}

}  // namespace rnbd
