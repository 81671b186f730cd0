// ClientSession: user messages (SESS_INFO, OPEN, CLOSE), one at a time on connection 0, with the
// permit that is kept for them.

#include <cstring>

#include "rtrs/base/assert.h"
#include "rtrs/base/rare.h"
#include "rtrs/core/client_session_inside.h"

namespace rtrs {

void ClientSession::Inside::submit_user(UserRequest request) {
    users.push_back(std::move(request));
    if (closing || dead) {
        failure_timer.arm(environment.clock.now());
        return;
    }
    send_next_user();
}

void ClientSession::Inside::send_next_user() {
    if (users.empty() || user_path != no_path || user_failing) return;
    UserRequest& user = users.front();
    const Instant now = environment.clock.now();
    const std::uint16_t path = link_up ? choose_path(user.response_bytes, now) : no_path;
    if (path == no_path) {
        failure_timer.arm(now);
        return;
    }
    const std::uint32_t permit = user_permit();
    std::memcpy(header(permit), user.message.data(), user.message.size());
    // An answer without data must not pass for the one before it.
    std::memset(control_memory.data(), 0, user.response_bytes);
    if (user.sequence == 0) user.sequence = ++last_sequence;
    user_path = path;
    user_posted = now;
    expect_answer(user_posted);
    ClientPath& on = *paths[path].path;
    on.post({.permit = permit,
             .direction = user.direction,
             .payload_bytes = user.response_bytes,
             .message_bytes = static_cast<std::uint32_t>(user.message.size()),
             .payload = {control_memory.data(), 0},
             .target = on.memory().control->remote(0, user.response_bytes),
             .header = header(permit),
             .sequence = user.sequence,
             .connection = 0});
}

void ClientSession::Inside::user_answered(int error) {
    const UserRequest user = std::move(users.front());
    users.pop_front();
    user_path = no_path;
    user.responded(user.context, from_errno(error),
                   {control_memory.data(), error == 0 ? user.response_bytes : 0});
    send_next_user();
}

// With sequences it goes on elsewhere like any request. Without, or without a path, its owner hears
// that its fate is unknown. With sequences the next message has a newer one, which keeps a late one
// out. Without, a late one may run; but its answer goes to the connection that it came over, of
// which nothing is left here, and it does no harm: who opens a volume again gets the same, and what
// is closed names one opening. No fence is waited for, since volumes have to be opened before what
// waits for them is.
void ClientSession::Inside::user_path_lost() {
    user_path = no_path;
    if (exactly_once() && link_up && !closing) {
        RTRS_RARE(failed_over);
        return send_next_user();
    }
    user_failing = true;
}

void ClientSession::Inside::fail_users() {
    // One that is still posted somewhere is reported when that path has drained.
    if (user_path != no_path || !(user_failing || closing || !link_up)) return;
    std::list<UserRequest> failed;
    failed.swap(users);
    user_failing = false;
    const std::error_code error =
        closing ? make_error_code(Error::closed) : make_error_code(Error::path_lost);
    for (const UserRequest& user : failed) user.responded(user.context, error, {});
    send_next_user();
    announce_link_if_ready();
}

}  // namespace rtrs
