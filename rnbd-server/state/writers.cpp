#include "rnbd-server/state/writers.h"

#include <algorithm>
#include <utility>

namespace rnbd {
namespace {

bool contains(Writers::Ids ids, Writers::Id id) { return std::ranges::find(ids, id) != ids.end(); }

}  // namespace

bool Writers::is_out(Id id) const noexcept {
    return std::ranges::find(out_, id, &One::id) != out_.end();
}

bool Writers::knows(Id id) const noexcept {
    return std::ranges::find(known_, id, &One::id) != known_.end();
}

Writers::News Writers::opens(const One& it, Ids here) {
    if (knows(it.id)) return News::none;
    // Of another export it may be another device, whose life goes on.
    const auto put_out_by_it = std::erase_if(known_, [&](One& one) {
        const bool former = one.session == it.session && one.export_name == it.export_name;
        if (!former || contains(here, one.id)) return false;
        put_out(std::move(one));
        return true;
    });
    if (known_.size() >= known_max) {
        const auto oldest =
            std::ranges::find_if(known_, [&](const One& one) { return !contains(here, one.id); });
        if (oldest != known_.end()) known_.erase(oldest);
    }
    known_.push_back(it);
    return put_out_by_it > 0 ? News::out : News::known;
}

bool Writers::closes(Id id) {
    return std::erase_if(known_, [id](const One& one) { return one.id == id; }) > 0;
}

std::vector<Writers::One> Writers::writes(Ids here) {
    std::vector<One> away;
    std::erase_if(known_, [&](const One& one) {
        if (contains(here, one.id)) return false;
        put_out(one);
        away.push_back(one);
        return true;
    });
    return away;
}

void Writers::restore_known(One one) {
    if (known_.size() < known_max) known_.push_back(std::move(one));
}

void Writers::put_out(One one) {
    const auto same = [&](const One& other) { return other.session == one.session; };
    if (std::ranges::count_if(out_, same) >= static_cast<std::ptrdiff_t>(out_of_session_max)) {
        out_.erase(std::ranges::find_if(out_, same));
    }
    if (out_.size() >= out_max) out_.erase(out_.begin());
    out_.push_back(std::move(one));
}

}  // namespace rnbd
