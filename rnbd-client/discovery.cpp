#include "rnbd-client/discovery.h"

#include <utility>

#include "rtrs/base/error.h"

namespace rnbd {

std::string catalog_failure(std::error_code error) {
    if (error == std::errc::operation_not_supported) {
        return "the server has no catalog: it is not an rnbd-server, or an older one";
    }
    return error.message();
}

Discovery::Discovery(rtrs::SessionEnvironment environment, rtrs::ClientSessionOptions options,
                     Owner& owner)
    : environment_(environment),
      owner_(owner),
      remote_(environment, std::move(options), *this),
      timer_(environment.clock, this,
             [](void* self) { static_cast<Discovery*>(self)->time_is_up(); }) {}

std::error_code Discovery::start(rtrs::Duration timeout, Answered answered) {
    const rtrs::ClientSessionOptions& options = remote_.rtrs().options();
    for (const rtrs::PathAddress& path : options.paths) {
        if (const auto error = lock_.take(options.name, path.destination)) return error;
    }
    if (const auto error = remote_.open()) return error;
    answered_ = std::move(answered);
    timer_.arm(environment_.clock.now() + timeout);
    remote_.catalog().ask([this](std::error_code error, const std::vector<CatalogEntry>& entries) {
        answer(error ? catalog_failure(error) : "", entries);
    });
    return {};
}

void Discovery::stop() { answer("rnbd-client is stopping", {}); }

void Discovery::time_is_up() {
    const auto status = remote_.rtrs().status();
    std::string why = "no answer in time";
    for (const auto& path : status.paths) {
        if (!path.reason.empty()) why += "; " + path.destination + ": " + path.reason;
    }
    answer(why, {});
}

void Discovery::answer(const std::string& error, const std::vector<CatalogEntry>& entries) {
    if (!answered_) return;
    timer_.disarm();
    std::exchange(answered_, nullptr)(error, entries);
    remote_.close();
}

}  // namespace rnbd
