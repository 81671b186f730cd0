// The connection of a path that carries messages: receives and send buffers, one message per send,
// RDMA reads, and the memory that the peer may read through it.
//
//   State      On                        Goes to  Does
//   dialling   established               waiting  post hello
//   waiting    the peer's hello          up       messages flow
//   waiting    none within silence_max   lost     as any loss
//   any        loss, disconnect()        lost     tells the service, then the path; disconnects
//   lost       drained                   drained  gives registrations up, tells the path
//
// The link has a protection domain of its own: once it has drained, nobody reads what it has
// registered.
//
// OWNER: the client's or server's path, which outlives it. THREAD: the session's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rtrs/base/clock.h"
#include "rtrs/base/lazy_memory.h"
#include "rtrs/fabric.h"
#include "rtrs/messages.h"
#include "rtrs/wire/tag.h"

namespace rtrs {

class MessageLink;
class MessageCore;

// What a link tells its path.
class MessageLinkOwner {
  public:
    enum class WasUp : std::uint8_t { no, yes };
    // Called once, and not after disconnect(). why: the reason in words; valid during the call.
    virtual void message_link_lost(MessageLink& link, WasUp was_up, std::error_code reason,
                                   std::string_view why) = 0;
    // The link may be destroyed from here on, also inside this call.
    virtual void message_link_drained(MessageLink& link) = 0;

  protected:
    ~MessageLinkOwner() = default;
};

// A read of content from the peer that is under way.
struct MessageRead {
    std::uint64_t number = 0;
    std::uint64_t peer_life = 0;
    MessageBuffer into;
    std::unique_ptr<MemoryRegion> region;
};

class MessageLink final : public EndpointHandler {
  public:
    // The same as in EndpointOptions.
    struct Carried {
        std::uint32_t worker = 0;
        Duration silence_max = EndpointOptions{}.silence_max;
        EndpointOptions::Packets packets = EndpointOptions{}.packets;
    };
    // fabric: the one used by dial(), or from which accept()'s request came.
    MessageLink(MessageCore& core, MessageLinkOwner& owner, Fabric& fabric, const Carried& carried);
    ~MessageLink();
    MessageLink(const MessageLink&) = delete;
    MessageLink& operator=(const MessageLink&) = delete;

    // ERRORS: ENOMEM, as Fabric::connect.
    std::error_code dial(const std::string& source, const std::string& destination,
                         Bytes private_data);
    // ERRORS: ENOMEM, as ConnectRequest::accept.
    std::error_code accept(ConnectRequest& request, Bytes private_data);
    void disconnect();
    bool drained() const noexcept { return endpoint_ == nullptr; }
    // Ends the link because of what the peer did.
    void fail(std::string_view why) { fail(Error::protocol, why); }
    // Ends the link because of what happened to it, or failed to happen.
    void fail(std::error_code reason, std::string_view why);

    // --- For the service.
    bool up() const noexcept { return state_ == State::up; }
    void greeted() noexcept;
    bool lost() const noexcept { return state_ == State::lost; }
    bool can_send() const noexcept { return !free_sends_.empty() && !lost(); }
    // body, content: sent behind the header, one after the other. ASSUMES: can_send(), and they
    // fit.
    void send(const TagHeader& header, Bytes body, Bytes content);
    // The peer may read this memory until conceal() returns true, or until the link is drained.
    std::expected<RemoteBuffer, std::error_code> expose(std::uint64_t number, MutableBytes memory);
    // False: the peer is just reading the memory, which must then be kept, and the link must end.
    bool conceal(std::uint64_t number);
    void keep(std::shared_ptr<const MessageBuffer> memory) { kept_.push_back(std::move(memory)); }
    // MessageCore::read_ended() follows, with the same read. ERRORS: ENOMEM.
    std::error_code read(MessageRead read, const RemoteBuffer& from);
    std::uint32_t registrations() const noexcept {
        return static_cast<std::uint32_t>(exposed_.size() + reads_.size());
    }

    // EndpointHandler
    void on_established(Bytes private_data) override;
    void on_rejected(Bytes private_data) override;
    void on_completion(const Completion& completion) override;
    void on_disconnected(std::error_code reason) override;
    void on_drained() override;

  private:
    enum class State : std::uint8_t { dialling, waiting, up, lost };

    std::error_code prepare();
    std::error_code post_receives();
    EndpointOptions endpoint_options() const noexcept;
    Segment receive_buffer(std::uint64_t slot) const noexcept;
    void send_ended(const Completion& completion);
    void received(const Completion& completion);
    void end(std::error_code reason, std::string_view why);
    // False: the link was lost already.
    bool lose();

    MessageCore& core_;
    MessageLinkOwner& owner_;
    Fabric& fabric_;
    Carried carried_;
    std::unique_ptr<ProtectionDomain> domain_;
    State state_ = State::dialling;
    std::unique_ptr<Endpoint> endpoint_;
    std::size_t slot_bytes_;
    std::uint32_t receives_;
    LazyMemory memory_;  // receive buffers, then send buffers
    std::unique_ptr<MemoryRegion> region_;
    std::vector<std::uint32_t> free_sends_;
    std::vector<std::shared_ptr<const MessageBuffer>> kept_;  // outlives the regions
    std::map<std::uint64_t, std::unique_ptr<MemoryRegion>> exposed_;
    std::map<std::uint64_t, MessageRead> reads_;  // by context
    std::uint64_t last_read_;
    Timer hello_timer_;
};

}  // namespace rtrs
