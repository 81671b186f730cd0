#include "rnbd-client/discovery.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "rtrs/base/error.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

ControlFailure no_answer(const rtrs::ClientSessionStatus& status) {
    std::string why;
    bool asked = false;  // over a path that is up: its server owes the answer
    for (const auto& path : status.paths) {
        if (path.state == rtrs::PathState::connected || path.reason.empty()) {
            asked = true;
            continue;
        }
        if (!why.empty()) why += "; ";
        if (status.paths.size() > 1) why += path.destination + ": ";
        why += path.reason;
    }
    if (why.empty()) return {ControlError::timed_out, "no answer in time"};
    return {ControlError::timed_out, asked ? "no answer in time; " + why : std::move(why)};
}

std::optional<ControlFailure> failure_of(std::error_code error, const RemoteCatalog& catalog) {
    if (!error) return std::nullopt;
    if (error == rtrs::Error::protocol && !catalog.complaint().empty()) {
        return ControlFailure{ControlError::failed,
                              "the server's catalog cannot be read: " + catalog.complaint()};
    }
    return ControlFailure{
        ControlError::failed,
        error == std::errc::operation_not_supported
            ? "the server has no catalog: it is not an rnbd-server, or an older one"
            : error.message()};
}

}  // namespace

Discovery::Discovery(rtrs::SessionEnvironment environment, rtrs::ClientSessionOptions options,
                     Owner& owner)
    : environment_(environment),
      owner_(owner),
      remote_(environment, std::move(options), *this),
      timer_(environment.clock, this, rtrs::member_call<&Discovery::time_is_up>) {}

std::error_code Discovery::start(rtrs::Duration timeout, Answered answered) {
    const rtrs::ClientSessionOptions& options = remote_.rtrs().options();
    for (const rtrs::PathAddress& path : options.paths) {
        if (const auto error = lock_.take(options.name, path.destination)) return error;
    }
    if (const auto error = remote_.open()) return error;
    answered_ = std::move(answered);
    timer_.arm(environment_.clock.now() + timeout);
    remote_.catalog().ask([this](std::error_code error, const std::vector<CatalogEntry>& entries) {
        answer(failure_of(error, remote_.catalog()), entries);
    });
    return {};
}

void Discovery::stop() {
    answer(ControlFailure{ControlError::stopping, "rnbd-client is stopping"}, {});
}

void Discovery::time_is_up() { answer(no_answer(remote_.rtrs().status()), {}); }

void Discovery::answer(const std::optional<ControlFailure>& failure,
                       const std::vector<CatalogEntry>& entries) {
    if (!answered_) return;
    timer_.disarm();
    std::exchange(answered_, nullptr)(failure, entries);
    remote_.close();
}

// --- Over a session that is there.

CatalogQuestions::CatalogQuestions(rtrs::Clock& clock, RemoteSession& remote)
    : clock_(clock),
      remote_(remote),
      timer_(clock, this, rtrs::member_call<&CatalogQuestions::look>) {}

void CatalogQuestions::ask(rtrs::Duration timeout, Discovery::Answered answered) {
    const rtrs::Instant deadline = clock_.now() + timeout;
    waiting_.push_back({deadline, std::move(answered)});
    if (!timer_.armed() || deadline < timer_.deadline()) timer_.arm(deadline);
    if (std::exchange(asked_, true)) return;
    remote_.catalog().ask([this](std::error_code error, const std::vector<CatalogEntry>& entries) {
        asked_ = false;
        answer(failure_of(error, remote_.catalog()), entries);
    });
}

void CatalogQuestions::answer(const std::optional<ControlFailure>& failure,
                              const std::vector<CatalogEntry>& entries) {
    timer_.disarm();
    for (const Question& one : std::exchange(waiting_, {})) one.answered(failure, entries);
}

void CatalogQuestions::look() {
    const rtrs::Instant now = clock_.now();
    const auto late =
        std::ranges::partition(waiting_, [&](const Question& one) { return one.deadline > now; });
    const std::vector<Question> over(std::make_move_iterator(late.begin()),
                                     std::make_move_iterator(late.end()));
    waiting_.erase(late.begin(), late.end());
    if (!waiting_.empty()) {
        timer_.arm(std::ranges::min(waiting_, {}, &Question::deadline).deadline);
    }
    const ControlFailure why = no_answer(remote_.rtrs().status());
    for (const Question& one : over) one.answered(why, {});
}

}  // namespace rnbd
