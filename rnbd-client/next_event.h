// What an unanswered request waits for, and until when. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rnbd-client/device.h"
#include "rtrs/client.h"

namespace rnbd {

// What will happen to a request next if nothing else happens before.
struct NextEvent {
    enum class Kind : std::uint8_t {
        probe,          // the path that carries the request is probed
        answer,         // the server answers it: the path has been heard since the request was late
        path_dead,      // that path is given up if nothing at all is received from it
        path_drained,   // the request leaves its path, which is lost, when the path has drained
        connect,        // it is sent when this path is connected; in: the next attempt
        no_attempt,     // no path will be dialled: all are closed
        reopen,         // it is sent when the volume is open
        fence,          // it goes on when the server has said that older attempts are over
        fail,           // it fails because the hold time is over
        held_for_ever,  // no hold time is set
        payload,        // its NBD client sends the rest of its data; in: or is disconnected
        own_answers,    // earlier requests of its connection are answered
        permit,         // a permit becomes free: requests of others are answered
        left_behind,    // the requests that departed clients left in progress end
        taken           // its NBD client takes the answer; in: or is disconnected
    };
    Kind kind = Kind::probe;
    std::string path;  // the label of the path; empty: none
    std::optional<rtrs::Duration> in;
    friend bool operator==(const NextEvent&, const NextEvent&) = default;
};
// The words of the control protocol.
const char* to_string(NextEvent::Kind kind) noexcept;
const char* word_of(rtrs::RequestStatus::Stage stage) noexcept;
const char* word_of(DeviceStall::Stage stage) noexcept;

// What a request that the session has waits for, in order of time. fails_at: when the hold time of
// its volume is over.
std::vector<NextEvent> next_events(const rtrs::RequestStatus& request,
                                   const rtrs::ClientSessionStatus& session,
                                   const rtrs::ClientSessionOptions& options,
                                   std::optional<rtrs::Instant> fails_at, rtrs::Instant now);

// The same for a request that its volume holds and the session does not know.
std::vector<NextEvent> next_events_of_held(const rtrs::ClientSessionStatus& session,
                                           const rtrs::ClientSessionOptions& options,
                                           std::optional<rtrs::Instant> fails_at,
                                           rtrs::Instant now);
// The same for a request that waits at its NBD client or its device.
NextEvent next_event(const DeviceStall& stall, rtrs::Instant now);

}  // namespace rnbd
