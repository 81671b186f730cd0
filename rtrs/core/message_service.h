// One end of a session's messages: what is to be sent, what has arrived, and which connection
// carries it. docs/reference/wire-tags.md has the rules.
//
// OWNER: ClientSession or ServerSession, which keeps it longer than all links. THREAD: the
// session's.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "rtrs/base/clock.h"
#include "rtrs/core/message_link.h"
#include "rtrs/messages.h"
#include "rtrs/tag/offload_matcher.h"

namespace rtrs {

// What the service tells its session.
class MessageCoreOwner {
  public:
    // The other end was created anew. Everything that was posted has failed.
    virtual void messages_reset() = 0;

  protected:
    ~MessageCoreOwner() = default;
};

class MessageCore final : public MessageService, public TagMatchHandler {
  public:
    // life: random, not 0.
    MessageCore(Clock& clock, const MessageOptions& options, std::uint64_t life,
                MessageCoreOwner& owner);
    ~MessageCore();
    static std::error_code check(const MessageOptions& options) noexcept;

    // MessageService
    std::error_code send(Tag tag, MessageBuffer content, Sent sent, void* context) override;
    std::expected<ReceiveId, std::error_code> receive(TagPattern pattern,
                                                      std::uint64_t capacity_bytes,
                                                      Received received, void* context) override;
    bool cancel(ReceiveId id) override;
    MessageStatus status() const override;

    // The session has ended: everything fails with Error::closed. ASSUMES: no link is left.
    void close();
    const MessageOptions& options() const noexcept { return options_; }
    Clock& clock() const noexcept { return clock_; }

    // --- For links.
    void link_established(MessageLink& link);
    void message_arrived(MessageLink& link, Bytes message);
    void send_buffer_free() { pump_soon(); }
    void read_ended(MessageLink& link, MessageRead read, bool done);
    void link_lost(MessageLink& link);
    void link_gone(MessageLink& link);

  private:
    struct Outgoing {
        Tag tag = 0;
        MessageBuffer content;
        Sent sent = nullptr;
        void* context = nullptr;
        std::uint64_t number = 0;  // 0: not sent on any link yet
        bool rendezvous = false;
    };
    struct Posted {
        Received received = nullptr;
        void* context = nullptr;
    };
    // Where content can be read, and through which link. Removed when that link is lost.
    struct Offer {
        MessageLink* link;
        RemoteBuffer from;
    };
    struct Incoming {
        enum class State : std::uint8_t { waiting, reading, ready };
        Tag tag = 0;
        State state = State::waiting;
        bool rendezvous = false;
        bool matched = false;
        std::uint64_t bytes = 0;
        std::optional<Instant> no_memory_since;
        std::error_code error{};
        Posted receiver{};
        std::vector<std::byte> eager;
        MessageBuffer content;
        // For a rendezvous: what the header on each link said, the newest last. A header may come
        // late, over a link that its sender has already lost, so an offer must not displace that of
        // another link.
        std::vector<Offer> offers;
    };
    struct Finish {
        MessageLink* link;
        std::uint64_t number;
        Tag tag;
    };

    // TagMatchHandler
    void on_match(const TagMatch& match) override;
    void on_cancelled(ReceiveId, std::uint64_t) override {}
    void on_arrival(const TagMessage&, TagArrival) override {}
    void on_device_broken(const char*) override {}

    void hello(MessageLink& link, Bytes body);
    void apply(const TagProgress& progress, MessageLink& link);
    void data(MessageLink& link, const TagHeader& header, Bytes body);
    void accept(std::uint64_t number, MessageLink& link, const TagHeader& header, Bytes body);
    void announced_again(std::uint64_t number, MessageLink& link, const TagHeader& header,
                         Bytes body);
    void finished(MessageLink& link, const TagHeader& header);
    void start_read(std::uint64_t number, Incoming& incoming);
    void deliver();
    void reset();
    void fail_everything(std::error_code error);

    void pump_soon() { pump_timer_.arm(clock_.now()); }
    void pump();
    void send_finishes();
    void send_progress(MessageLink& link);
    void send_data(MessageLink& link);
    // False: the memory of the content cannot be registered.
    bool send_one(MessageLink& link, const Outgoing& outgoing, std::uint64_t number);
    // The full number for the low bits that came: the one nearest to `newest`.
    static std::uint64_t whole_number(std::uint32_t low, std::uint64_t newest) noexcept;
    void try_again_soon();
    // Memory could not be allocated or registered: tries again soon. True: it was tried for long
    // enough.
    bool tried_long_enough(std::optional<Instant>& no_memory_since);
    void end_send(std::deque<Outgoing>::iterator outgoing, std::error_code error);
    // Returns the links on which the peer is still reading the content: they keep it, and must end.
    std::vector<MessageLink*> conceal(Outgoing& outgoing);
    void watch_for_silence();

    Clock& clock_;
    MessageOptions options_;
    std::uint64_t life_;
    MessageCoreOwner& owner_;
    Timer pump_timer_;
    Timer silence_timer_;
    bool closed_ = false;
    std::vector<MessageLink*> links_;      // established and not lost
    std::vector<MessageLink*> all_links_;  // until they are gone
    MessageLink* sender_ = nullptr;        // the link on which we send
    std::uint64_t peer_life_ = 0;
    TagHello peer_{};

    // Sending. Messages that have a number come first, in order.
    std::deque<Outgoing> outgoing_;
    std::size_t next_ = 0;  // index in outgoing_ of the next to be sent on sender_
    std::uint64_t last_number_ = 0;
    std::optional<Instant> no_memory_since_;  // for outgoing_[next_]
    TagProgress theirs_{};                    // what the peer says of our messages

    // Receiving.
    std::unique_ptr<OffloadMatcher> matcher_;
    std::map<std::uint64_t, Posted> posted_;  // by context
    // By context, which is what receive() returns: a new matcher begins its own from the start.
    std::map<std::uint64_t, ReceiveId> matcher_ids_;
    std::uint64_t last_context_ = 0;
    std::map<std::uint64_t, Incoming> incoming_;  // by number
    std::list<std::uint64_t> deliveries_;         // matched, in the order of matching
    TagProgress ours_{};
    bool progress_due_ = false;
    std::list<Finish> finishes_;

    std::uint64_t sent_ = 0;
    std::uint64_t received_ = 0;
    std::uint64_t rendezvous_ = 0;
};

}  // namespace rtrs
