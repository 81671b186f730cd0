// ServerSession: which of two paths a client without sequence numbers has given up.
//
// Such a client sends a permit on another path while it is under way on one only when it has given
// that one up. Mostly what comes second is the newer attempt, but not if this side stood still:
// both are in queues of the network adapter then, and which of these is looked at first says
// nothing. To close the path that the client has chosen would leave it without any, and to serve
// what lay in the queue of the other one would do a write again that others have followed.
//
// So both paths are asked for a sign of life, and no request of the session is looked at meanwhile.
// On a path that it has given up the client has no connection any more that could answer: if the
// older one answers, the newer one is given up, and what came on it never runs. Without an answer
// the newer one is believed.

#include "rtrs/core/server_inside.h"

namespace rtrs {
namespace {

// How long an answer may take.
constexpr Duration answer_timeout = std::chrono::seconds(1);
// How long the answer of the newer one may take after that of the older one. No client of ours or
// the kernel's answers by both; the one that does wants the newer one.
constexpr Duration timeout_for_newer = std::chrono::milliseconds(100);

constexpr std::string_view came_back = "its permit came back on another path";
constexpr std::string_view given_up =
    "it does not answer, and one of its permits is under way on a path that does";

}  // namespace

void ServerSession::Inside::dispute(ServerPath& newer, ServerPath& older) {
    const auto disputes = [this](const ServerPath& path) {
        return &path == newer_path || &path == older_path;
    };
    if (disputes(newer) && disputes(older)) return;  // another permit, perhaps the other way round
    // One at a time: a client has seldom given up two of three paths at once.
    const auto connected = ServerPath::State::connected;
    if (disputed() || newer.state() != connected || older.state() != connected) {
        return older.close(came_back);
    }
    newer_path = &newer;
    older_path = &older;
    older_lives = false;
    for (const auto& path : paths) path->hold_requests();
    dispute_timer.arm(server.environment.clock.now() + answer_timeout);
    older.ask();
    newer.ask();
}

void ServerSession::Inside::lives(ServerPath& path) {
    if (&path == newer_path) return end_dispute(older_path, came_back);
    if (&path != older_path) return;
    older_lives = true;
    if (newer_path == nullptr) return end_dispute(nullptr, {});
    dispute_timer.arm(server.environment.clock.now() + timeout_for_newer);
}

void ServerSession::Inside::dispute_overdue() {
    if (older_lives) return end_dispute(newer_path, given_up);
    end_dispute(older_path, came_back);
}

// What the one that is left holds still has to wait for its answer: the client may have given that
// one up, and lost the other one since.
void ServerSession::Inside::left_dispute(const ServerPath& path) {
    (&path == newer_path ? newer_path : older_path) = nullptr;
    if (!disputed() || older_lives) end_dispute(newer_path, given_up);
}

void ServerSession::Inside::end_dispute(ServerPath* loser, std::string_view why) {
    newer_path = older_path = nullptr;
    dispute_timer.disarm();
    if (loser != nullptr) loser->close(why);
    for (const auto& path : paths) {
        for (const std::uint32_t permit : path->waiting_permits()) {
            if (!disputed()) release(permit);
        }
    }
    for (const auto& path : paths) {
        if (!disputed()) path->go_on();
    }
}

}  // namespace rtrs
