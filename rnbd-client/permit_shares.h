// What the devices of one session, and their NBD clients, may hold of its permits, so that one
// whose requests hang, or who does not take its answers, does not stop the others.
//
// A device may hold its fair share, or what one request needs. Of what it may hold, each of its
// clients may have, beyond one request, no more than twice what stays free with it; where that is
// little, one may have all.
//
// Claims that find no room at their device go in the order in which they came: who wants much waits
// until as much is free, and nobody gets ahead of it there. Who only has too much itself delays
// nobody else.
//
// OWNER: the daemon, one per session; outlives its devices. THREAD: the session's.
#pragma once

#include <cstdint>

#include "rnbd/fair_share.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/intrusive_list.h"

namespace rnbd {

class PermitShares {
  public:
    // What a client of a device holds.
    struct Client {
        std::uint32_t held = 0;
    };

    // A request that wants permits. granted: they count as held from now on. Called from the middle
    // of somebody's give_back() or forget().
    struct Claim : rtrs::ListLink {
        using Granted = void (*)(Claim& claim);
        Claim(Client& its_client, Granted handler) noexcept
            : granted(handler), client(its_client) {}
        Granted granted;
        Client& client;
        std::uint32_t permits = 0;
        std::uint32_t of = 0;  // all that the session has
    };

    struct Device : rtrs::ListLink {
        std::uint32_t held = 0;
        bool full = false;  // there is a claim that waits for others to give back
        rtrs::IntrusiveList<Claim> claims;
    };

    void join(Device& device) noexcept {
        ++devices_count_;
        devices_.push_back(device);
    }
    // ASSUMES: it holds nothing, and nobody claims.
    void leave(Device& device) noexcept {
        RTRS_ASSERT(device.held == 0 && device.claims.empty());
        --devices_count_;
        rtrs::IntrusiveList<Device>::remove(device);
    }

    // True: the permits count as held. False: they do when granted() is called.
    bool take_or_wait(Device& device, Claim& claim) noexcept {
        const bool room = !device.full && client_has_room(device, claim);
        if (room && device_has_room(device, claim)) {
            take(device, claim);
            return true;
        }
        device.full = device.full || room;
        device.claims.push_back(claim);
        ++waiting_;
        return false;
    }
    // Nothing happens to one that does not wait.
    void forget(Device& device, Claim& claim) noexcept {
        if (!claim.linked()) return;
        rtrs::IntrusiveList<Claim>::remove(claim);
        --waiting_;
        grant(device);
    }
    void give_back(Device& device, Client& client, std::uint32_t permits) noexcept {
        RTRS_ASSERT(all_held_ >= permits && device.held >= permits && client.held >= permits);
        all_held_ -= permits;
        device.held -= permits;
        client.held -= permits;
        if (waiting_ > 0) devices_.for_each([this](Device& one) { grant(one); });
    }

  private:
    // Divided further, some five would be left to each.
    static constexpr std::uint32_t divided_from = 32;

    std::uint32_t part_of(const Device& device, std::uint32_t of) const noexcept {
        return fair_share(of, all_held_ - device.held, devices_count_);
    }
    bool device_has_room(const Device& device, const Claim& claim) const noexcept {
        const std::uint64_t held = device.held + std::uint64_t{claim.permits};
        return device.held == 0 || held <= part_of(device, claim.of);
    }
    bool client_has_room(const Device& device, const Claim& claim) const noexcept {
        const std::uint64_t part = part_of(device, claim.of);
        if (claim.client.held == 0 || part < divided_from) return true;
        const std::uint64_t held = claim.client.held + std::uint64_t{claim.permits};
        const std::uint64_t by_all = device.held + std::uint64_t{claim.permits};
        return held + 2 * by_all <= 2 * part;
    }
    void take(Device& device, const Claim& claim) noexcept {
        all_held_ += claim.permits;
        device.held += claim.permits;
        claim.client.held += claim.permits;
    }
    void grant(Device& device) noexcept {
        device.full = false;
        device.claims.for_each([&](Claim& claim) {
            if (device.full || !client_has_room(device, claim)) return;
            device.full = !device_has_room(device, claim);
            if (device.full) return;
            rtrs::IntrusiveList<Claim>::remove(claim);
            --waiting_;
            take(device, claim);
            claim.granted(claim);
        });
    }

    std::uint32_t devices_count_ = 0;
    std::uint32_t all_held_ = 0;
    std::uint32_t waiting_ = 0;  // claims of all devices
    rtrs::IntrusiveList<Device> devices_;
};

}  // namespace rnbd
