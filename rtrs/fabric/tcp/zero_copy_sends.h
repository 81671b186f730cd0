// Sends of one connection whose payload the kernel does not copy. The kernel reads the payload,
// repeatedly if segments are lost, until the peer has acknowledged it, and reports that in a second
// completion. Until then the memory is held, and what is sent from there on does not count as sent.
//
// Where the kernel copies all the same, as between two processes of one machine, this costs more
// than a plain send: when the kernel reports a copy, zero-copy sends are given up.
#pragma once

#include <array>
#include <cstdint>

#include "rtrs/base/assert.h"
#include "rtrs/reactor.h"

namespace rtrs::tcp {

class ZeroCopySends {
  public:
    // The smallest payload sent in this way. The kernel's documentation
    // (networking/msg_zerocopy.rst) calls zero-copy effective from some 10 KB on; but here such a
    // payload also becomes a message of its own.
    static constexpr std::size_t bytes_min = 64u << 10;
    static constexpr std::uint32_t held_max = 16;

    struct Send : Operation {
        Send() noexcept : Operation(nullptr) {}
        void* owner = nullptr;
        std::uint64_t begin = 0;  // stream position
    };

    // handler: called with one of the sends; its owner is the one given here.
    ZeroCopySends(Operation::Completed handler, void* owner) noexcept {
        for (Send& send : sends_) {
            send.completed = handler;
            send.owner = owner;
        }
    }

    bool may_begin() const noexcept { return !given_up_ && tail_ - head_ < held_max; }
    void give_up() noexcept { given_up_ = true; }
    bool given_up() const noexcept { return given_up_; }
    // ASSUMES: may_begin(); sends begin one after the other, each at the stream position where the
    // sent bytes end.
    Send& begin(std::uint64_t position) noexcept {
        RTRS_ASSERT(may_begin());
        Send& send = sends_[tail_++ % held_max];
        send.begin = position;
        return send;
    }
    // To be called after a send's last completion. These may come in another order than the sends.
    void release() noexcept {
        while (head_ != tail_ && !sends_[head_ % held_max].in_flight) ++head_;
    }
    bool holds() const noexcept { return head_ != tail_; }
    // Stream position from which memory is held. ASSUMES: holds().
    std::uint64_t held_from() const noexcept { return sends_[head_ % held_max].begin; }

  private:
    std::array<Send, held_max> sends_;
    std::uint64_t head_ = 0;
    std::uint64_t tail_ = 0;
    bool given_up_ = false;
};

}  // namespace rtrs::tcp
