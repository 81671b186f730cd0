// Several reactors of one program, each on a thread of its own, that share what their handlers work
// on: for a program whose sockets and files keep more than one processor busy.
//
// Handlers of a group run one at a time, so they need no locks among themselves, whichever thread
// they run on. What the kernel does for a member (copying to and from sockets and files, checksums
// of the network, sleeping), most of the work of a program that moves data, runs at the same time
// as everything else.
//
// What is spread, and how: each socket and each file request belongs to one member. Its completions
// come on that member's thread, and what their handlers cause is submitted there, if they ask for
// it by Reactor::here(). Ring work, timers and turn-end tasks of another member may be asked for by
// any handler; the member is woken for them, which costs a system call and a change of threads.
//
// THREAD: made, started, stopped and destroyed by one thread, that of the first member. That thread
// has the right to run handlers from create() on, but for the waits inside run().
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <system_error>

#include "rtrs/reactor.h"

namespace rtrs {

class ReactorGroup {
  public:
    static constexpr std::uint32_t members_max = 64;
    struct Options {
        // With the first. 1..members_max.
        std::uint32_t members = 1;
        Reactor::Options each{};
        // Called on the thread of each further member before it runs, not at the same time as
        // handlers: to name it, or to choose its processors. May be empty.
        std::function<void(std::uint32_t number)> begin{};
    };

    // first: member 0, in no group yet; outlives this. Handlers may ask the other members for work
    // from now on; they do it from start() on.
    // ERRORS: those of Reactor::create(), EINVAL (members).
    static std::expected<std::unique_ptr<ReactorGroup>, std::error_code> create(
        Reactor& first, const Options& options);
    // Stops. ASSUMES: nobody asks a member for anything any more; what is left of it is dropped, as
    // by ~Reactor().
    ~ReactorGroup();
    ReactorGroup(const ReactorGroup&) = delete;
    ReactorGroup& operator=(const ReactorGroup&) = delete;

    // Runs the members beside the first, which its owner runs. ERRORS: EAGAIN (no more threads).
    std::error_code start();
    // Ends their threads after the turns that they are in. Not from inside a handler.
    void stop();

  private:
    struct Inside;
    explicit ReactorGroup(std::unique_ptr<Inside> inside) noexcept;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rtrs
