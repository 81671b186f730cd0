// ClientSession: user messages (SESS_INFO, OPEN, CLOSE), one at a time on connection 0, with the
// permit that is kept for them, or one on loan.

#include <cstring>
#include <iterator>
#include <utility>

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
    user_waits_for_permit = false;  // it may have its own again before another one came
    if (user_permit_in_doubt() && !user_loan) {
        user_waits_for_permit = pool.free_of_doubt() == 0;
        if (user_waits_for_permit) return;  // waits for the first permit that comes back
        user_loan = static_cast<std::uint32_t>(pool.take());
    }
    const std::uint32_t permit = user_loan.value_or(user_permit());
    std::memcpy(header(permit), user.message.data(), user.message.size());
    // An answer without data must not pass for the one before it.
    std::memset(memory.control(), 0, user.response_bytes);
    if (user.sequence == 0) user.sequence = ++last_sequence;
    user_path = path;
    user_posted = now;
    user_posted_permit = permit;
    if (exactly_once()) expect_answer(user_posted);
    ClientPath& on = *paths[path].path;
    on.post({.permit = permit,
             .direction = user.direction,
             .payload_bytes = user.response_bytes,
             .message_bytes = static_cast<std::uint32_t>(user.message.size()),
             .payload = {memory.control(), 0},
             .target = on.memory().control->remote(0, user.response_bytes),
             .header = header(permit),
             .sequence = user.sequence,
             .connection = 0});
    on.user_message_is_under_way(true);
}

void ClientSession::Inside::user_answered(int error) {
    const UserRequest user = std::move(users.front());
    users.pop_front();
    paths[user_path].path->user_message_is_under_way(false);
    user_path = no_path;
    if (user_loan) to_pool(*std::exchange(user_loan, std::nullopt));
    user.responded(user.context, from_errno(error),
                   {memory.control(), error == 0 ? user.response_bytes : 0});
    send_next_user();
}

// With sequence numbers the message goes on elsewhere like any request. Without them, or without a
// path, its owner is told that its fate is unknown. With sequence numbers the next message has a
// newer one, which keeps a late attempt out. Without them, a late attempt may run. But its answer
// goes to the connection that it came over, of which nothing is left here, and it does no harm:
// opening a volume again gives the same volume, and a close names one opening.
//
// No fence is waited for, since volumes have to be opened before what waits for them can go on. But
// the next message uses another permit: all paths share the server's chunks, and a kernel's server
// reads a message in its chunk until it has answered it. SOURCE: process_msg_open() of Linux 6.12,
// drivers/block/rnbd/rnbd-srv.c, which copies the volume's name when it is open.
void ClientSession::Inside::user_path_lost() {
    const std::uint16_t lost = std::exchange(user_path, no_path);
    if (exactly_once() && link_up && !closing) {
        RTRS_RARE(failed_over);
        return send_next_user();
    }
    user_failing = true;
    if (exactly_once() || closing || planted(PlantedBug::permit_reused_early)) return;
    Request& request = requests[user_posted_permit];
    request.path = lost;
    if (user_posted_permit != user_permit()) {
        user_loan.reset();
        pool.put_doubtful(PermitId{user_posted_permit});
    }
    RTRS_RARE(user_permit_doubted);
    fate_unknown(user_posted_permit);
}

bool ClientSession::Inside::lend_to_user(std::uint32_t permit) {
    if (!user_waits_for_permit || user_loan) return false;
    user_loan = permit;
    failure_timer.arm(environment.clock.now());
    return true;
}

// Fails all user messages if there is no link; otherwise the first, which may have run.
void ClientSession::Inside::fail_users() {
    const bool has_link = link_up && !closing;
    if (std::exchange(user_waits_for_permit, false) && has_link) send_next_user();
    // A message that is still posted is reported when its path has drained.
    if (user_path != no_path || (has_link && !user_failing)) return;
    std::list<UserRequest> failed;
    failed.splice(failed.end(), users, users.begin(),
                  has_link ? std::next(users.begin()) : users.end());
    user_failing = false;
    if (user_loan) to_pool(*std::exchange(user_loan, std::nullopt));
    const std::error_code error =
        closing ? make_error_code(Error::closed) : make_error_code(Error::path_lost);
    for (const UserRequest& user : failed) user.responded(user.context, error, {});
    send_next_user();
    announce_link_if_ready();
}

}  // namespace rtrs
