#include "rnbd-client/server_views.h"

#include <memory>
#include <utility>

#include "rnbd-client/client_session.h"
#include "rtrs/base/error.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

std::string reason_of(std::error_code error) {
    if (error == std::errc::operation_not_supported) {
        return "the server cannot be asked: it is not an rnbd-server, or an older one";
    }
    if (error == std::errc::not_connected) return "no path is up";
    return error.message();
}

// Lives as long as a session may still answer.
struct Round {
    Round(rtrs::Clock& its_clock, std::function<void(const ServerViews&)> its_done)
        : timer(its_clock, this, rtrs::member_call<&Round::finish>), done(std::move(its_done)) {}

    void finish() {
        timer.disarm();
        if (done) std::exchange(done, nullptr)(views);
    }

    rtrs::Timer timer;
    std::function<void(const ServerViews&)> done;
    ServerViews views;
    std::size_t missing = 0;
};

}  // namespace

void ask_servers(const Client& client, rtrs::Duration timeout,
                 std::function<void(const ServerViews&)> done) {
    const auto round = std::make_shared<Round>(client.clock(), std::move(done));
    round->missing = client.sessions().size();
    for (const auto& [name, session] : client.sessions()) {
        round->views[name].reason = "no answer in time";
    }
    for (const auto& [name, session] : client.sessions()) {
        session->remote.statistics().ask(
            [round, asked = name](std::error_code error, const StatisticsResponse& statistics) {
                round->views[asked] = {statistics, error ? reason_of(error) : ""};
                if (--round->missing == 0) round->finish();
            });
    }
    if (round->missing == 0) return round->finish();
    round->timer.arm(client.clock().now() + timeout);
}

}  // namespace rnbd
