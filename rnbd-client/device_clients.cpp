// Who is at a device: who hears of what was lost, and what those who have gone left behind.
#include <algorithm>
#include <utility>

#include "rnbd-client/device.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

bool overlap(const nbd::Request& a, const nbd::Request& b) noexcept {
    return a.offset < b.offset + b.length && b.offset < a.offset + a.length;
}

}  // namespace

// --- Blocks.

// Nobody has to look again at what he was told: what is written in smaller blocks than the volume
// has now would fail, for the kernel after it was acknowledged.
void Device::limit_blocks() {
    std::uint32_t least = kernel_block_bytes_;
    clients_.for_each([&](const DeviceClient& client) {
        if (client.client_kind == DeviceClient::Kind::kernel) return;
        least = least == 0 ? client.block_bytes : std::min(least, client.block_bytes);
    });
    volume_.limit_blocks(least);
}

void Device::set_kernel_blocks(std::uint32_t bytes) {
    kernel_block_bytes_ = bytes;
    limit_blocks();
}

// --- Losses.

void Device::join(DeviceClient& client) {
    client.losses_told = losses_told_;
    clients_.push_back(client);
    was_used_ = true;
    limit_blocks();
}

// The volume fails only one flush, whoever sent it and whatever became of the answer.
void Device::tell_losses(DeviceRequest& request) const noexcept {
    const std::uint64_t losses = volume_.losses().news;
    if (losses == request.client->losses_told) return;
    if (!request.error) request.error = rtrs::from_errno(EIO);
    if (request.error == std::errc::io_error) request.tells_losses = losses;
}

void Device::lost_in_part() {
    volume_.lost_in_part();
    if (options_.on_losses_changed) options_.on_losses_changed();
}

void Device::told(DeviceClient& client, std::uint64_t losses) {
    const auto hears = [&](DeviceClient& one) {
        one.losses_told = std::max(one.losses_told, losses);
    };
    hears(client);
    if (client.client_kind == DeviceClient::Kind::kernel) {
        clients_.for_each([&](DeviceClient& other) {
            if (other.client_kind == DeviceClient::Kind::kernel) hears(other);
        });
    }
    losses_told_ = std::max(losses_told_, losses);
    if (options_.on_losses_changed) options_.on_losses_changed();
}

bool Device::is_owed(const DeviceClient& client) const noexcept {
    const std::uint64_t losses = volume_.losses().news;
    return losses > losses_of_former_life_ && client.losses_told < losses;
}

bool Device::owes_losses() noexcept {
    bool owes = has_untold_losses() || one_left_untold_;
    clients_.for_each([&](const DeviceClient& client) { owes = owes || is_owed(client); });
    return owes;
}

// --- What gone clients left behind.

// Only for what was started earlier: two that were left behind never wait for each other.
bool Device::may_start(const DeviceRequest& request) const noexcept {
    for (const DeviceRequest* one = abandoned_; one != nullptr; one = one->next_abandoned) {
        if (one->order < request.order && overlap(one->nbd, request.nbd)) return false;
    }
    return true;
}

void Device::leave(DeviceClient& client) {
    if (!client.linked()) return;
    rtrs::IntrusiveList<DeviceClient>::remove(client);
    limit_blocks();
    if (is_owed(client)) {
        one_left_untold_ = one_left_untold_ || ending_;
        if (options_.on_losses_changed) options_.on_losses_changed();
    }
    clients_.for_each([](DeviceClient& other) { other.on_other_left(); });
}

bool Device::others_are_leaving(const DeviceClient& client) noexcept {
    bool found = false;
    bool before = true;
    clients_.for_each([&](DeviceClient& other) {
        before = before && &other != &client;
        found = found || (before && other.leaving());
    });
    return found;
}

void Device::end_leaving(const DeviceClient& client) {
    bool before = true;
    clients_.for_each([&](DeviceClient& other) {
        before = before && &other != &client;
        if (before && other.leaving()) other.end_leaving();
    });
}

std::vector<DeviceStall> Device::stalls() {
    std::vector<DeviceStall> all;
    clients_.for_each([&](const DeviceClient& client) { client.add_stalls(all); });
    return all;
}

void Device::leave_behind(DeviceRequest& request) noexcept {
    if (!request.started || request.abandoned || !nbd::changes_data(request.nbd.command)) return;
    request.abandoned = true;
    request.next_abandoned = std::exchange(abandoned_, &request);
    ++left_behind_.requests;
}

void Device::forget_abandoned(DeviceRequest& request) noexcept {
    DeviceRequest** place = &abandoned_;
    while (*place != &request) place = &(*place)->next_abandoned;
    *place = request.next_abandoned;
    request.abandoned = false;
    --left_behind_.requests;
}

void Device::start_waiting() {
    DeviceRequest* next = std::exchange(waiting_, nullptr);
    left_behind_.waiting = 0;
    // They are in order of their starts again, since that is what a client may rely on.
    DeviceRequest* in_order = nullptr;
    while (next != nullptr) {
        DeviceRequest* const request = next;
        next = request->next_waiting;
        request->next_waiting = std::exchange(in_order, request);
    }
    while (in_order != nullptr) {
        DeviceRequest& request = *in_order;
        in_order = request.next_waiting;
        if (may_start(request)) {
            run(request);
            continue;
        }
        request.next_waiting = std::exchange(waiting_, &request);
        ++left_behind_.waiting;
    }
}

}  // namespace rnbd
