// Several reactors of one program, each on its own thread, whose handlers work on shared data: for
// a program whose sockets and files keep more than one processor busy.
//
// Handlers of a group run one at a time, so they need no locks among themselves, whichever thread
// they run on. What the kernel does for a member (copying to and from sockets and files, network
// checksums, sleeping) runs in parallel with everything else. In a program that moves data that is
// most of the work.
//
// How work is spread: each socket and each file request belongs to one member. Its completions come
// on that member's thread, and their handlers submit further work there if they ask Reactor::here()
// for it. Any handler may also ask another member for ring work, timers and turn-end tasks; that
// member is woken for them, which costs a system call and a thread switch.
//
// THREAD: created, started, stopped and destroyed by one thread, that of the first member. From
// create() on, that thread has the right to run handlers, except while it waits inside run().
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
        // Including the first. 1..members_max.
        std::uint32_t members = 1;
        Reactor::Options each{};
        // Called on the thread of each further member before that member runs, never at the same
        // time as handlers: to name the thread, or to choose its processors. May be empty.
        std::function<void(std::uint32_t number)> begin{};
    };

    // first: member 0, in no group yet; outlives the group. Handlers may ask the other members for
    // work from now on; those do it from start() on.
    // ERRORS: those of Reactor::create(), EINVAL (members).
    static std::expected<std::unique_ptr<ReactorGroup>, std::error_code> create(
        Reactor& first, const Options& options);
    // Stops the group. ASSUMES: nobody asks a member for anything any more; pending work is
    // dropped, as by ~Reactor().
    ~ReactorGroup();
    ReactorGroup(const ReactorGroup&) = delete;
    ReactorGroup& operator=(const ReactorGroup&) = delete;

    // Runs all members except the first, which its owner runs. ERRORS: EAGAIN (no more threads).
    std::error_code start();
    // Ends these members' threads, each after its current turn. Must not be called from inside a
    // handler.
    void stop();

  private:
    struct Inside;
    explicit ReactorGroup(std::unique_ptr<Inside> inside) noexcept;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rtrs
