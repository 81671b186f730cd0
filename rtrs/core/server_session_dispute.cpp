// ServerSession: which of two paths a client without sequence numbers has given up.
//
// Such a client sends a permit on another path while it is under way on one only when it has given
// that one up. Mostly what comes second is the newer attempt, but not if this side stood still:
// both are in queues of the network adapter then, and which of these is looked at first says
// nothing. To close the path that the client has chosen would leave it without any, and to serve
// what lay in the queue of the other one would do a write again that others have followed.
//
// So both paths are asked for a sign of life, and no request of the session is looked at meanwhile.
// On a path that it has given up the client has no connection any more that could answer.

#include "rtrs/core/server_inside.h"

namespace rtrs {
namespace {

// How long the answer of a path that lives may take.
constexpr Duration patience = std::chrono::seconds(1);

constexpr std::string_view came_back = "its permit came back on another path";

}  // namespace

void ServerSession::Inside::dispute(ServerPath& newer, ServerPath& older) {
    if (&newer == newer_path && &older == older_path) return;
    // One at a time: a client has seldom given up two of three paths at once.
    const auto connected = ServerPath::State::connected;
    if (disputed() || newer.state() != connected || older.state() != connected) {
        return older.close(came_back);
    }
    newer_path = &newer;
    older_path = &older;
    older_lives = false;
    for (const auto& path : paths) path->hold_requests();
    dispute_timer.arm(server.environment.clock.now() + patience);
    older.ask();
    newer.ask();
}

void ServerSession::Inside::lives(ServerPath& path) {
    if (&path == newer_path) return end_dispute(*older_path, came_back);
    if (&path == older_path) older_lives = true;
}

// The newer one is given more time than the older one, whose client may just be giving it up.
void ServerSession::Inside::dispute_overdue() {
    if (!older_lives || older_path->state() != ServerPath::State::connected) {
        return end_dispute(*older_path, came_back);
    }
    end_dispute(*newer_path,
                "it does not answer, and one of its permits is under way on a path that does");
}

void ServerSession::Inside::end_dispute(ServerPath& loser, std::string_view why) {
    newer_path = older_path = nullptr;
    dispute_timer.disarm();
    loser.close(why);
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
