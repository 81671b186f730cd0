#include "rnbd/remote_figures.h"

#include <utility>

#include "rtrs/base/error.h"

namespace rnbd {
namespace {

// At most this many callers wait for a server that does not answer.
constexpr std::size_t askers_max = 256;

}  // namespace

void RemoteFigures::ask(Answered answered) {
    if (!session_.link_up()) return answered(rtrs::from_errno(ENOTCONN), {});
    if (asked_.size() >= askers_max) return answered(rtrs::from_errno(ENOBUFS), {});
    asked_.push_back(std::move(answered));
    if (asked_.size() > 1) return;
    if (const auto error = question()) answer(error, {});
}

std::error_code RemoteFigures::question() {
    if (session_.messages() == nullptr || !session_.peer_has_messages()) {
        return rtrs::from_errno(EOPNOTSUPP);
    }
    if (!waiting_) {
        const auto posted = session_.messages()->receive(
            {.tag = figures_tag(FiguresTag::figures, 0), .mask = figures_tag_mask},
            SessionFigures::wire_bytes,
            [](void* self, const rtrs::ReceivedMessage& message) {
                static_cast<RemoteFigures*>(self)->received(message);
            },
            this);
        if (!posted) return posted.error();
        waiting_ = true;
    }
    rtrs::MessageBuffer content(FiguresRequest::wire_bytes);
    if (content.size() == 0) return rtrs::from_errno(ENOMEM);
    FiguresRequest{}.emit(content.bytes());
    return session_.messages()->send(figures_tag(FiguresTag::request, ++number_),
                                     std::move(content), nullptr, nullptr);
}

void RemoteFigures::received(const rtrs::ReceivedMessage& message) {
    waiting_ = false;
    // reset() or closed() follows.
    if (message.error == rtrs::Error::path_lost || message.error == rtrs::Error::closed) return;
    const auto figures = message.error ? std::unexpected(ParseError::wrong_type)
                                       : SessionFigures::parse(message.content);
    const bool ours = static_cast<std::uint32_t>(message.tag) == number_;
    if (!figures || !ours) return answer(rtrs::Error::protocol, {});
    answer({}, *figures);
}

// The server's end was made anew, and was not asked.
void RemoteFigures::reset() {
    waiting_ = false;
    answer(rtrs::Error::path_lost, {});
}

void RemoteFigures::answer(std::error_code error, const SessionFigures& figures) {
    for (const auto& answered : std::exchange(asked_, {})) answered(error, figures);
}

}  // namespace rnbd
