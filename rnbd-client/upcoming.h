// What an unanswered request waits for, and until when; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rnbd-client/device.h"
#include "rtrs/client.h"

namespace rnbd {

// What will happen to a request next if nothing else happens before.
struct Upcoming {
    enum class Event : std::uint8_t {
        probe,          // the path that has it is probed
        answer,         // it is answered: the server was heard of on that path after this was late
        path_dead,      // ... is given up if nothing at all is received from it
        path_drained,   // it leaves the path, which is lost, when that has drained
        connect,        // it is sent when this path is connected; in: the next attempt
        no_attempt,     // no path will be dialled: all are closed
        reopen,         // it is sent when the volume is open
        fence,          // it goes on when the server has said that older attempts are over
        fail,           // it fails because the hold time is over
        held_for_ever,  // no hold time is set
        payload,        // its NBD client sends the rest of its data; in: or its connection is ended
        own_answers,    // earlier requests of its connection are answered
        permit,         // a permit is free: requests of others are answered
        left_behind,    // what clients that have gone left in progress has ended
        taken           // its NBD client takes the answer; in: or its connection is ended
    };
    Event event = Event::probe;
    std::string path;  // its label; empty: none
    std::optional<rtrs::Duration> in;
    friend bool operator==(const Upcoming&, const Upcoming&) = default;
};
// The words of the control protocol.
const char* to_string(Upcoming::Event event) noexcept;
const char* word_of(rtrs::RequestStatus::Stage stage) noexcept;
const char* word_of(DeviceStall::Stage stage) noexcept;

// What a request of the session waits for, what comes first being first. fails_at: when its
// volume's hold time is over.
std::vector<Upcoming> upcoming(const rtrs::RequestStatus& request,
                               const rtrs::ClientSessionStatus& session,
                               const rtrs::ClientSessionOptions& options,
                               std::optional<rtrs::Instant> fails_at, rtrs::Instant now);

// The same of one that its volume holds: the session has not seen it.
std::vector<Upcoming> upcoming_of_held(const rtrs::ClientSessionStatus& session,
                                       const rtrs::ClientSessionOptions& options,
                                       std::optional<rtrs::Instant> fails_at, rtrs::Instant now);
// And of one that its NBD client, or its device, holds.
Upcoming upcoming(const DeviceStall& stall, rtrs::Instant now);

}  // namespace rnbd
