#include "rtrs/core/fence_probe.h"

#include <algorithm>

#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"
#include "rtrs/wire/connect.h"

namespace rtrs {
namespace {

// A server that waits for a heartbeat timeout takes half a minute; asking more often does not help.
constexpr Duration delay_max = std::chrono::seconds(1);

}  // namespace

FenceProbe::FenceProbe(Clock& clock, const ClientSessionOptions& options, FenceProbeOwner& owner)
    : clock_(clock),
      options_(options),
      owner_(owner),
      timer_(clock, this, member_call<&FenceProbe::deadline>) {}

FenceProbe::~FenceProbe() { RTRS_ASSERT(drained()); }

void FenceProbe::start() {
    if (active_) return;
    active_ = true;
    // The path itself comes first: if it can be dialled again, there is nothing to ask.
    delay_ = options_.reconnect_delay_min;
    if (drained()) timer_.arm(clock_.now() + delay_);
}

void FenceProbe::stop() {
    active_ = false;
    asked_ = false;
    timer_.disarm();
    if (endpoint_) endpoint_->disconnect();
}

void FenceProbe::deadline() {
    if (!active_) return;
    if (endpoint_) return endpoint_->disconnect();  // on_drained asks again
    ask();
}

void FenceProbe::ask() {
    auto endpoint = owner_.dial_fence_probe(*this);
    if (!endpoint || !*endpoint) return again();
    endpoint_ = std::move(*endpoint);
    asked_ = true;
    timer_.arm(clock_.now() + options_.connect_timeout);
}

void FenceProbe::again() {
    delay_ = std::min(2 * delay_, std::max(delay_max, options_.reconnect_delay_min));
    timer_.arm(clock_.now() + delay_);
}

void FenceProbe::gone() {
    if (!asked_) return;
    active_ = false;
    asked_ = false;
    timer_.disarm();
    owner_.path_is_fenced(*this);
}

// The server has created the path anew, which nobody wants: it is left again at once.
void FenceProbe::on_established(Bytes private_data) {
    const auto response = ConnectResponseMessage::parse(private_data);
    endpoint_->disconnect();
    if (response && response->error == 0) gone();
}

void FenceProbe::on_rejected(Bytes private_data) {
    const auto response = ConnectResponseMessage::parse(private_data);
    if (response && response->error == EEXIST) gone();
}

void FenceProbe::on_disconnected(std::error_code) { endpoint_->disconnect(); }

void FenceProbe::on_drained() {
    endpoint_.reset();
    asked_ = false;
    if (active_) {
        again();
    } else {
        owner_.fence_probe_drained();
    }
}

}  // namespace rtrs
