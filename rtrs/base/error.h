// Errors as every layer reports them.
//
// Operation errors are std::error_code: either an errno value (std::generic_category) or one of the
// codes below, which exist only where some caller treats them differently.
#pragma once

#include <system_error>

namespace rtrs {

enum class Error {
    // The path, or the last path of the session, was lost before the answer came. Retryable.
    path_lost = 1,
    // No path is up, and the hold time is over.
    no_path,
    // The peer does not speak this protocol or broke it: the path is dropped.
    protocol,
    // The peer refused the connection.
    rejected,
    // The peer stayed silent for too long.
    timed_out,
    // Closed by this side.
    closed,
    // A remote key, range or access right was refused.
    remote_access,
    // Payload or header checksum did not match.
    checksum,
    // The peer ended the connection in an orderly way.
    closed_by_peer,
    // On the peer, the session's name is in use by somebody else.
    name_in_use,
    // The peer admits the session once everything that this client's former session had in flight
    // has ended.
    former_session,
};

const std::error_category& error_category() noexcept;
std::error_code make_error_code(Error error) noexcept;

// The positive errno that stands for this error on the RTRS wire and towards NBD; 0 for success.
// Always within 0..511 (9 bits, the limit of the immediate).
int to_errno(std::error_code error) noexcept;

// errno as an error_code; 0 is success.
inline std::error_code from_errno(int value) noexcept {
    return std::error_code(value < 0 ? -value : value, std::generic_category());
}

}  // namespace rtrs

template <>
struct std::is_error_code_enum<rtrs::Error> : std::true_type {};
