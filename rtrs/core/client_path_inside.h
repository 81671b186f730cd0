// What the files of ClientPath share: client_path.cpp (its life), client_path_handshake.cpp and
// client_path_requests.cpp.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "rtrs/base/error.h"
#include "rtrs/base/lazy_queue.h"
#include "rtrs/core/client_path.h"
#include "rtrs/core/send_signals.h"
#include "rtrs/wire/connect.h"
#include "rtrs/wire/request.h"

namespace rtrs {

struct ClientPath::Connection final : EndpointHandler {
    // Context of a receive that is not one of the small ones.
    static constexpr std::uint64_t info_response_context = UINT64_MAX;
    // Context of a send.
    static constexpr std::uint64_t info_request_context = UINT64_MAX;
    // Every small receive gets an RKEY_RSP, or no data.
    static constexpr std::size_t small_receive_bytes = KeyResponseMessage::wire_bytes;

    Connection(ClientPath& its_path, std::uint16_t its_id) : path(its_path), id(its_id) {}

    void on_established(Bytes private_data) override { path.established(*this, private_data); }
    void on_rejected(Bytes private_data) override {
        const auto response = ConnectResponseMessage::parse(private_data);
        const int error = response && response->error != 0 ? response->error : ECONNREFUSED;
        if (error == ESTALE) path.owner_.taken_over();
        path.fail(from_errno(error), rejected_with(error));
    }
    static const char* rejected_with(int error) noexcept {
        switch (error) {
            case EEXIST:
                return "rejected by the server, which has a path between the same addresses "
                       "already (to a kernel's server, an IPv4 and an IPv6 path are that)";
            case ENXIO:
                return "rejected by the server, which does not know this session: it is another "
                       "server, or has forgotten it";
            default:
                return "rejected by the server";
        }
    }
    void on_completion(const Completion& completion) override { path.completed(*this, completion); }
    void on_disconnected(std::error_code reason) override {
        ended = true;
        path.peer_ended(reason ? reason : make_error_code(Error::path_lost), what_ended(reason));
    }
    const char* what_ended(std::error_code reason) const {
        if (path.machine_.state() == PathState::connecting) return "cannot connect";
        if (reason == Error::rejected) {
            return "turned away by the server, which is being drained or does not let this session "
                   "in";
        }
        if (is_refusal(reason)) return "refused by the server";
        // A kernel's server, which has no words for it.
        const bool not_let_in = !path.sequenced() &&
                                path.machine_.state() == PathState::exchanging &&
                                reason == Error::closed_by_peer;
        return not_let_in ? "ended by the server before it let this session in: another client may "
                            "have its name there"
                          : "connection lost";
    }
    static bool is_refusal(std::error_code reason) noexcept {
        return reason == Error::name_in_use || reason == Error::former_session ||
               reason == Error::rejected;
    }
    void on_drained() override {
        endpoint.reset();
        path.drained();
    }

    ClientPath& path;
    std::uint16_t id;
    bool disconnecting = false;
    bool ended = false;         // by the peer, or by the fabric
    bool asks_network = false;  // because an answer is late; until one comes
    // A heartbeat was sent on this connection because of such an answer, and is not answered
    // either.
    bool asked = false;
    std::optional<Instant> asked_there;  // since when it is known to be at the server's side
    std::unique_ptr<Endpoint> endpoint;
    LazyMemory receive_memory;
    std::unique_ptr<MemoryRegion> receive_region;
    std::uint32_t receives = 0;  // small ones
    // Only of connection 0: the buffer of the big receive (INFO_RSP), followed by the one from
    // which INFO_REQ is sent. Freed when INFO_RSP has come and INFO_REQ has left.
    LazyMemory control_memory;
    std::unique_ptr<MemoryRegion> control_region;
    std::size_t info_request_offset = 0;
    std::uint32_t control_uses = 0;
    SendSignals signals;
    // Requests for which the send queue had no place, oldest first, in a ring.
    LazyQueue<PathRequest> waiting;
};

}  // namespace rtrs
