// How many permits of one session its devices, and their NBD clients, may hold, so that a device
// whose requests hang, or a client that does not take its answers, does not stop the others.
//
// A device may hold its fair share (rnbd/fair_share.h), or what one request needs. Of that share,
// each client of the device may hold, beyond one request, no more than twice what it leaves free;
// if the share is small (below divided_from), one client may hold all of it.
//
// A newcomer is a client that has taken no answer yet. While the device has a client that is not a
// newcomer, all newcomers together hold no more than half of the share, or what one of their
// requests needs: however many connect and stand still, the others find room. By the same rule each
// newcomer leaves a part of that half to others. A small share is not divided in this way. A
// newcomer's request that needs more than half takes room from the other clients: after one such
// request, the other clients come before the next one.
//
// Claims that find no room at their device are served in the order in which they came: a claim for
// many permits waits until that many are free, and no claim at that device gets ahead of it. A
// claim that waits only because its own client holds too much delays no others.
//
// OWNER: Client::Session, one per session; outlives its devices. THREAD: the session's.
#pragma once

#include <cstdint>
#include <utility>

#include "rnbd/fair_share.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/intrusive_list.h"

namespace rnbd {

class PermitShares {
  public:
    // The permits that a client of a device holds.
    struct Client {
        std::uint32_t held = 0;
        bool was_served = false;  // see served()
        bool has_left = false;
    };

    // A request for permits. granted: called when the permits count as held, from the middle of any
    // client's give_back(), forget(), served() or left().
    struct Claim : rtrs::ListLink {
        using Granted = void (*)(Claim& claim);
        Claim(Client& its_client, Granted handler) noexcept
            : granted(handler), client(its_client) {}
        Granted granted;
        Client& client;
        std::uint32_t permits = 0;
        std::uint32_t of = 0;  // all permits of the session
    };

    struct Device : rtrs::ListLink {
        std::uint32_t held = 0;
        std::uint32_t held_by_newcomers = 0;
        std::uint32_t served_clients = 0;  // clients that are not newcomers and have not left
        bool full = false;                 // a claim waits for others to give back permits
        bool full_of_newcomers = false;    // a newcomer's claim waits for other newcomers
        bool half_was_exceeded = false;    // by a newcomer; no served client got permits since
        bool was_passed_over = false;      // a newcomer that would exceed the half again waits
        rtrs::IntrusiveList<Claim> claims;
    };

    void join(Device& device) noexcept {
        ++devices_count_;
        devices_.push_back(device);
    }
    // ASSUMES: the device holds nothing and has no claims.
    void leave(Device& device) noexcept {
        RTRS_ASSERT(device.held == 0 && device.claims.empty());
        --devices_count_;
        rtrs::IntrusiveList<Device>::remove(device);
    }

    // True: the permits count as held. False: they count as held when granted() is called.
    bool take_or_wait(Device& device, Claim& claim) noexcept {
        if (take_if_there_is_room(device, claim)) return true;
        device.claims.push_back(claim);
        ++waiting_;
        return false;
    }
    // Withdraws a claim. Nothing happens if the claim does not wait.
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
        if (!client.was_served) device.held_by_newcomers -= permits;
        if (waiting_ > 0) devices_.for_each([this](Device& one) { grant(one); });
    }
    // The client has taken an answer, and is no newcomer any more.
    void served(Device& device, Client& client) noexcept {
        if (client.has_left || std::exchange(client.was_served, true)) return;
        ++device.served_clients;
        device.held_by_newcomers -= client.held;
        if (waiting_ > 0) grant(device);
    }
    // The client makes no more claims. It gives back what it holds when its requests are done.
    // Called once.
    void left(Device& device, Client& client) noexcept {
        client.has_left = true;
        if (!client.was_served) return;
        --device.served_clients;
        if (waiting_ > 0) grant(device);
    }
    // Whether anybody waits for permits that this client of the device holds.
    static bool others_wait_for(const Device& device, const Client& client) noexcept {
        return device.full || (device.full_of_newcomers && !client.was_served);
    }

  private:
    // Smaller shares are not divided: that would leave only about five permits to each client.
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
        const bool newcomer = is_limited(device, claim.client);
        const std::uint32_t sharers_hold = newcomer ? device.held_by_newcomers : device.held;
        const std::uint64_t held = claim.client.held + std::uint64_t{claim.permits};
        const std::uint64_t by_all = sharers_hold + std::uint64_t{claim.permits};
        return held + 2 * by_all <= 2 * (newcomer ? part / 2 : part);
    }
    static bool is_limited(const Device& device, const Client& client) noexcept {
        return !client.was_served && device.served_clients > 0;
    }
    bool newcomers_have_room(const Device& device, const Claim& claim) const noexcept {
        const std::uint32_t part = part_of(device, claim.of);
        if (device.held_by_newcomers == 0 || part < divided_from) return true;
        return device.held_by_newcomers + std::uint64_t{claim.permits} <= part / 2;
    }
    bool exceeds_half(const Device& device, const Claim& claim) const noexcept {
        return is_limited(device, claim.client) && claim.permits > part_of(device, claim.of) / 2;
    }
    // Whether a client that is not a newcomer waits for others to give back. One that waits only
    // because it holds too much itself does not count.
    bool served_client_waits(Device& device) const noexcept {
        bool found = false;
        device.claims.for_each([&](Claim& one) {
            found = found || (one.client.was_served && client_has_room(device, one));
        });
        return found;
    }
    // False: the claim waits, and so do later claims that need the same room.
    bool take_if_there_is_room(Device& device, const Claim& claim) noexcept {
        if (device.full || !client_has_room(device, claim)) return false;
        const bool large = exceeds_half(device, claim);
        // Otherwise clients that stand still, are cut off and come again would get one turn after
        // another.
        if (large && device.half_was_exceeded && served_client_waits(device)) {
            device.was_passed_over = true;
            return false;
        }
        if (is_limited(device, claim.client)) {
            device.full_of_newcomers =
                device.full_of_newcomers || !newcomers_have_room(device, claim);
            if (device.full_of_newcomers) return false;
        }
        device.full = !device_has_room(device, claim);
        if (device.full) return false;
        if (large || claim.client.was_served) device.half_was_exceeded = large;
        all_held_ += claim.permits;
        device.held += claim.permits;
        claim.client.held += claim.permits;
        if (!claim.client.was_served) device.held_by_newcomers += claim.permits;
        return true;
    }
    void grant(Device& device) noexcept {
        do {
            device.full = false;
            device.full_of_newcomers = false;
            device.was_passed_over = false;
            device.claims.for_each([&](Claim& claim) {
                if (!take_if_there_is_room(device, claim)) return;
                rtrs::IntrusiveList<Claim>::remove(claim);
                --waiting_;
                claim.granted(claim);
            });
        } while (device.was_passed_over && !served_client_waits(device));
    }

    std::uint32_t devices_count_ = 0;
    std::uint32_t all_held_ = 0;
    std::uint32_t waiting_ = 0;  // claims of all devices
    rtrs::IntrusiveList<Device> devices_;
};

}  // namespace rnbd
