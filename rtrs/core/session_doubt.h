// One session at the server, or two? Decides when a path may join the others.
//
// Several paths may be dialled before any is up, and each of these dials makes the session if the
// server has none. If the server loses the path that came up first before it gets the next such
// dial, it has two sessions of ours, one after the other, and this side does not know yet that the
// first is gone. A path that is accepted now is in the second, where nothing is open.
//
// So a path that was accepted while others are up waits until the server has answered, on one of
// them, what it was asked later: then their session lived when the path was accepted, and there was
// no other. If all of them end first, the path that waits is the first of what comes. As long as
// only one dial was ever made that may make a session, no path waits.
//
// Pure: it is told what paths ask and get answered. A path's questions are numbered from 1 and
// answered in their order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rtrs {

class ClientPath;

class SessionDoubt {
  public:
    // A dial leaves that makes the session if the server has none.
    void dialled() noexcept { several_dials_ = one_dial_, one_dial_ = true; }
    bool possible() const noexcept { return several_dials_; }

    // This path was accepted, and waits.
    void waits(ClientPath& path) { waiting_.push_back(&path); }
    // It waits no more, for whatever reason.
    void leaves(const ClientPath& path) noexcept {
        std::erase(waiting_, &path);
        std::erase_if(wanted_, [&](const Sign& sign) { return sign.waiting == &path; });
    }
    // The questions of `up` from the next one on, after the `asked` ones so far, count for it.
    void wants_sign(const ClientPath& waiting, const ClientPath& up, std::uint64_t asked) {
        wanted_.push_back({&waiting, &up, asked});
    }
    // A path is up no more: nothing is wanted of it.
    void ended(const ClientPath& up) noexcept {
        std::erase_if(wanted_, [&](const Sign& sign) { return sign.up == &up; });
    }

    bool anybody_waits() const noexcept { return !waiting_.empty(); }
    // One that waits and wants no sign of anybody; null: none.
    ClientPath* without_hope() const noexcept {
        return first([&](const ClientPath* path) {
            return std::ranges::find(wanted_, path, &Sign::waiting) == wanted_.end();
        });
    }
    // So many questions of `up` are answered. One that may join now; null: none.
    ClientPath* may_join(const ClientPath& up, std::uint64_t answered) const noexcept {
        return first([&](const ClientPath* path) {
            return std::ranges::any_of(wanted_, [&](const Sign& sign) {
                return sign.waiting == path && sign.up == &up && answered > sign.asked;
            });
        });
    }

  private:
    struct Sign {
        const ClientPath* waiting;
        const ClientPath* up;
        std::uint64_t asked;
    };
    template <typename Condition>
    ClientPath* first(Condition condition) const noexcept {
        const auto found = std::ranges::find_if(waiting_, condition);
        return found == waiting_.end() ? nullptr : *found;
    }

    bool one_dial_ = false;
    bool several_dials_ = false;
    std::vector<ClientPath*> waiting_;  // in the order in which they were accepted
    std::vector<Sign> wanted_;
};

}  // namespace rtrs
