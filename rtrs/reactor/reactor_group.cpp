#include "rtrs/reactor_group.h"

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/base/start_thread.h"
#include "rtrs/reactor/membership.h"
#include "rtrs/reactor/reactor_inside.h"

namespace rtrs {

constinit thread_local Reactor* reactor_of_this_thread = nullptr;

// --- A reactor as one of its members.

std::uint32_t Reactor::members() const noexcept {
    return inside_->group == nullptr ? 1
                                     : static_cast<std::uint32_t>(inside_->group->members.size());
}

Reactor& Reactor::member(std::uint32_t number) noexcept {
    RTRS_ASSERT(number < members());
    return inside_->group == nullptr ? *this : *inside_->group->members[number];
}

std::uint32_t Reactor::number() const noexcept { return inside_->number; }

Reactor& Reactor::here() noexcept {
    return inside_->group == nullptr ? *this : *reactor_of_this_thread;
}

void Reactor::join(Membership& membership, std::uint32_t number) noexcept {
    RTRS_ASSERT(inside_->group == nullptr && !inside_->in_turn);
    inside_->group = &membership;
    inside_->number = number;
}

void Reactor::leave() noexcept {
    inside_->group = nullptr;
    inside_->number = 0;
    inside_->held_on.reset();
    reactor_of_this_thread = nullptr;
}

void Reactor::note_where_held() noexcept {
    cpu_set_t processors;
    if (::sched_getaffinity(0, sizeof processors, &processors) != 0) return;
    if (CPU_COUNT(&processors) >= static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))) return;
    inside_->held_on = processors;
}

std::optional<std::uint32_t> Reactor::member_held_on(unsigned processor) const noexcept {
    if (inside_->group == nullptr) return std::nullopt;
    std::optional<std::uint32_t> found;
    for (const Reactor* const one : inside_->group->members) {
        const auto& held_on = one->inside_->held_on;
        if (!held_on || !CPU_ISSET(processor, &*held_on)) continue;
        if (found) return std::nullopt;
        found = one->number();
    }
    return found;
}

void Reactor::bind_to_this_thread() noexcept { reactor_of_this_thread = this; }

// The kernel ends the ring of a thread that has ended some time after the process, and what is
// registered there would stay open, and a device claimed, until then. Only its own thread can
// change that, and its mailbox is not delivered any more when the owners let go of their files.
void Reactor::let_go_of_files() noexcept { inside_->fixed_files.empty_all(); }

// A mailbox keeps the order, and handlers run one at a time. Who has nothing to unregister is not
// asked: its thread may be held up by a disk.
void Reactor::when_unregistered(std::function<void()> done) {
    struct Round {
        Reactor& asks;
        std::uint32_t left;
        std::function<void()> done;
    };
    std::vector<Reactor*> asked;
    for (std::uint32_t i = 0; i < members(); ++i) {
        if (member(i).inside_->to_unregister > 0) asked.push_back(&member(i));
    }
    if (asked.empty()) return post(std::move(done));
    const auto left = static_cast<std::uint32_t>(asked.size());
    const auto round = std::make_shared<Round>(Round{*this, left, std::move(done)});
    for (Reactor* const one : asked) {
        one->post([round] {
            if (--round->left == 0) round->asks.post(std::move(round->done));
        });
    }
}

// --- The group.

struct ReactorGroup::Inside {
    std::function<void(std::uint32_t)> begin;
    Membership membership;
    std::vector<std::unique_ptr<Reactor>> others;
    std::vector<std::thread> threads;

    void serve(Reactor& reactor);
};

void ReactorGroup::Inside::serve(Reactor& reactor) {
    membership.baton.take();
    reactor.bind_to_this_thread();
    if (begin) begin(reactor.number());
    reactor.note_where_held();
    reactor.run();
    reactor.let_go_of_files();
    membership.baton.give();
}

ReactorGroup::ReactorGroup(std::unique_ptr<Inside> inside) noexcept : inside_(std::move(inside)) {}

std::expected<std::unique_ptr<ReactorGroup>, std::error_code> ReactorGroup::create(
    Reactor& first, const Options& options) {
    if (options.members < 1 || options.members > members_max) {
        return std::unexpected(from_errno(EINVAL));
    }
    auto inside = std::make_unique<Inside>();
    inside->begin = options.begin;
    for (std::uint32_t i = 1; i < options.members; ++i) {
        auto other = Reactor::create(options.each);
        if (!other) return std::unexpected(other.error());
        inside->others.push_back(std::move(*other));
    }
    Membership& membership = inside->membership;
    membership.members.push_back(&first);
    for (const auto& other : inside->others) membership.members.push_back(other.get());
    for (std::uint32_t i = 0; i < options.members; ++i) {
        membership.members[i]->join(membership, i);
    }
    first.bind_to_this_thread();
    membership.baton.take();
    return std::unique_ptr<ReactorGroup>(new ReactorGroup(std::move(inside)));
}

ReactorGroup::~ReactorGroup() {
    stop();
    inside_->membership.members.front()->leave();
    inside_->membership.baton.give();
}

std::error_code ReactorGroup::start() {
    RTRS_ASSERT(inside_->threads.empty());
    inside_->membership.members.front()->note_where_held();
    for (const auto& other : inside_->others) {
        auto thread =
            start_thread([&inside = *inside_, &reactor = *other] { inside.serve(reactor); });
        if (!thread) return thread.error();
        inside_->threads.push_back(std::move(*thread));
    }
    return {};
}

void ReactorGroup::stop() {
    if (inside_->threads.empty()) return;
    for (const auto& other : inside_->others) other->stop();
    inside_->membership.baton.give();
    for (std::thread& thread : inside_->threads) thread.join();
    inside_->membership.baton.take();
    inside_->threads.clear();
}

}  // namespace rtrs
