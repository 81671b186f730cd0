#include "rnbd-server/statistics.h"

#include <utility>

#include "daemon/log/log.h"
#include "rtrs/base/error.h"
#include "rtrs/base/log_rate_limit.h"

namespace rnbd {

struct StatisticsService::Asker {
    StatisticsService& statistics;
    rtrs::ServerSession& session;
    rtrs::MessageService& messages;
    rtrs::LogRateLimit bad_questions{};
};

StatisticsService::StatisticsService(rtrs::Clock& clock, Look look)
    : clock_(clock), look_(std::move(look)) {}

StatisticsService::~StatisticsService() = default;

void StatisticsService::session_up(rtrs::ServerSession& session) {
    rtrs::MessageService* const service = session.messages();
    if (service == nullptr) return;
    auto& asker = askers_[&session] = std::make_unique<Asker>(*this, session, *service);
    wait_for_question(*asker);
}

void StatisticsService::session_down(rtrs::ServerSession& session) { askers_.erase(&session); }

// One at a time: further questions wait in the session's window.
void StatisticsService::wait_for_question(Asker& asker) {
    static_cast<void>(asker.messages.receive(
        {.tag = statistics_tag(StatisticsTag::request, 0), .mask = statistics_tag_mask},
        StatisticsRequest::wire_bytes,
        [](void* context, const rtrs::ReceivedMessage& message) {
            auto& asking = *static_cast<Asker*>(context);
            asking.statistics.asked(asking, message);
        },
        &asker));
}

void StatisticsService::asked(Asker& asker, const rtrs::ReceivedMessage& message) {
    if (message.error == rtrs::Error::closed) return;
    wait_for_question(asker);
    if (message.error) return;
    if (const auto request = StatisticsRequest::parse(message.content); !request) {
        if (const auto times = asker.bad_questions.happened(clock_.now())) {
            logger("rnbd.session")
                .warn("{}: bad question for its statistics: {}{}", printable(asker.session.name()),
                      text(request.error()), rtrs::how_often(*times));
        }
        return;
    }
    rtrs::MessageBuffer content(StatisticsResponse::wire_bytes);
    std::error_code error = content.size() == 0 ? rtrs::from_errno(ENOMEM) : std::error_code{};
    if (!error) {
        look_(asker.session).emit(content.bytes());
        const auto number = static_cast<std::uint32_t>(message.tag);
        error = asker.messages.send(statistics_tag(StatisticsTag::statistics, number),
                                    std::move(content), nullptr, nullptr);
    }
    if (error) {
        logger("rnbd.session")
            .warn("{}: its statistics cannot be sent: {}", printable(asker.session.name()),
                  error.message());
    }
}

}  // namespace rnbd
