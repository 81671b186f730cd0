// One session at the server, or two?
//
// Several paths may be dialled before any is up, and each of these dials makes the session if the
// server has none. If the server loses the path that came up first before it gets the next such
// dial, it has two sessions of ours, one after the other, and this side does not know yet that the
// first is gone. A path that is dialled now joins the second, where nothing is open. So after such
// a dial no path joins until the server has answered on all that are up: their session lives, and
// the dial has made no other. If one of them ends without an answer, the session begins anew.
//
// Pure: it is told the time and never reads a clock. Paths are only told apart by it.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "rtrs/base/instant.h"

namespace rtrs {

class ClientPath;

class SessionDoubt {
  public:
    // Such a dial was accepted. Next it is told which paths are up: they owe a sign.
    void begins(Instant now) noexcept {
        since_ = now;
        owing_.clear();
    }
    void owes_sign(const ClientPath& path) { owing_.push_back(&path); }
    // The server has answered on this path what it was asked then.
    void answered(const ClientPath& path, Instant asked) noexcept {
        if (asked >= since_) std::erase(owing_, &path);
    }
    // This path is up no more. Returns whether it owed a sign.
    bool ended(const ClientPath& path) noexcept { return std::erase(owing_, &path) > 0; }
    // All paths that are up are going to end.
    void is_over() noexcept { owing_.clear(); }

    bool open() const noexcept { return !owing_.empty(); }

  private:
    Instant since_{};
    std::vector<const ClientPath*> owing_;
};

}  // namespace rtrs
