#include "rnbd/remote_statistics.h"

#include <utility>

#include "rtrs/base/error.h"

namespace rnbd {
namespace {

// At most this many callers wait for a server that does not answer.
constexpr std::size_t askers_max = 256;

}  // namespace

void RemoteStatistics::ask(Answered answered) {
    if (!session_.link_up()) return answered(rtrs::from_errno(ENOTCONN), {});
    if (asked_.size() >= askers_max) return answered(rtrs::from_errno(ENOBUFS), {});
    asked_.push_back(std::move(answered));
    if (asked_.size() > 1) return;
    if (const auto error = question()) answer(error, {});
}

std::error_code RemoteStatistics::question() {
    if (session_.messages() == nullptr || !session_.peer_has_messages()) {
        return rtrs::from_errno(EOPNOTSUPP);
    }
    if (!waiting_) {
        const auto posted = session_.messages()->receive(
            {.tag = statistics_tag(StatisticsTag::statistics, 0), .mask = statistics_tag_mask},
            StatisticsResponse::wire_bytes,
            [](void* self, const rtrs::ReceivedMessage& message) {
                static_cast<RemoteStatistics*>(self)->received(message);
            },
            this);
        if (!posted) return posted.error();
        waiting_ = true;
    }
    rtrs::MessageBuffer content(StatisticsRequest::wire_bytes);
    if (content.size() == 0) return rtrs::from_errno(ENOMEM);
    StatisticsRequest{}.emit(content.bytes());
    return session_.messages()->send(statistics_tag(StatisticsTag::request, ++number_),
                                     std::move(content), nullptr, nullptr);
}

void RemoteStatistics::received(const rtrs::ReceivedMessage& message) {
    waiting_ = false;
    // reset() or closed() follows.
    if (message.error == rtrs::Error::path_lost || message.error == rtrs::Error::closed) return;
    const auto statistics = message.error ? std::unexpected(ParseError::wrong_type)
                                          : StatisticsResponse::parse(message.content);
    const bool ours = static_cast<std::uint32_t>(message.tag) == number_;
    if (!statistics || !ours) return answer(rtrs::Error::protocol, {});
    answer({}, *statistics);
}

// The server's end was made anew, and was not asked.
void RemoteStatistics::reset() {
    waiting_ = false;
    answer(rtrs::Error::path_lost, {});
}

void RemoteStatistics::answer(std::error_code error, const StatisticsResponse& statistics) {
    for (const auto& answered : std::exchange(asked_, {})) answered(error, statistics);
}

}  // namespace rnbd
