#include "rnbd-server/storage/delay_storage.h"

#include <unistd.h>

#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

constexpr rtrs::Duration gate_interval = std::chrono::milliseconds(20);

bool is_read(BlockOperation operation) noexcept { return operation == BlockOperation::read; }
bool is_flush(BlockOperation operation) noexcept { return operation == BlockOperation::flush; }

}  // namespace

struct DelayStorage::Passage final : BlockRequest {
    explicit Passage(DelayStorage& its_storage)
        : BlockRequest([](BlockRequest& request, std::error_code result) {
              auto& self = static_cast<Passage&>(request);
              self.error = result;
              self.original->failed_alone = self.failed_alone;
              self.inner_done = true;
              if (self.outside.options_.when == DelayOptions::When::after) {
                  return self.outside.wait(self);
              }
              self.outside.leave(self);
          }),
          outside(its_storage),
          timer(its_storage.clock_, this, [](void* self) {
              auto& passage = *static_cast<Passage*>(self);
              passage.outside.go_on(passage);
          }) {}

    DelayStorage& outside;
    BlockRequest* original = nullptr;
    rtrs::Duration delay{0};
    bool held = false;  // by the gate
    bool inner_done = false;
    std::error_code error;
    rtrs::Timer timer;
};

DelayStorage::DelayStorage(rtrs::Clock& clock, DeferredCompletions& deferred,
                           std::unique_ptr<Storage> inner, DelayOptions options)
    : clock_(clock),
      options_(std::move(options)),
      inner_(std::move(inner)),
      gate_timer_(clock, this, rtrs::member_call<&DelayStorage::look_at_gate>),
      deferred_(deferred) {}

DelayStorage::~DelayStorage() { RTRS_ASSERT(free_.size() == passages_.size()); }

void DelayStorage::submit(BlockRequest& request) {
    request.storage = this;
    Passage& passage = enter(request);
    if (options_.when == DelayOptions::When::before) return wait(passage);
    inner_->submit(passage);
}

DelayStorage::Passage& DelayStorage::enter(BlockRequest& request) {
    if (free_.empty()) free_.push_back(passages_.emplace_back(new Passage(*this)).get());
    Passage& passage = *free_.back();
    free_.pop_back();
    passage.operation = request.operation;
    passage.force_unit_access = request.force_unit_access;
    passage.no_unmap = request.no_unmap;
    passage.fast_only = request.fast_only;
    passage.offset = request.offset;
    passage.bytes = request.bytes;
    passage.data = request.data;
    passage.fixed_buffer = request.fixed_buffer;
    passage.fixed_buffer_of = request.fixed_buffer_of;
    passage.original = &request;
    passage.failed_alone = false;
    passage.inner_done = false;
    passage.delay = delay_of(request.operation);
    passage.held = held_by_gate(request.operation);
    return passage;
}

rtrs::Duration DelayStorage::delay_of(BlockOperation operation) {
    rtrs::Duration delay = is_read(operation)    ? options_.read
                           : is_flush(operation) ? options_.flush
                                                 : options_.write;
    if (options_.every > 0 && ++arrived_ % options_.every == 0) delay += options_.by;
    return delay;
}

bool DelayStorage::gate_exists() const noexcept {
    return !options_.gate.empty() && ::access(options_.gate.c_str(), F_OK) == 0;
}

bool DelayStorage::held_by_gate(BlockOperation operation) {
    const bool write = !is_read(operation) && !is_flush(operation);
    const bool concerned =
        options_.gate_operations == DelayOptions::Gate::all ||
        (options_.gate_operations == DelayOptions::Gate::reads ? is_read(operation) : write);
    if (!concerned) return false;
    if (!gate_exists()) {
        gate_arrived_ = 0;
        return false;
    }
    return !options_.gate_count || gate_arrived_++ < *options_.gate_count;
}

void DelayStorage::wait(Passage& passage) {
    if (std::exchange(passage.held, false)) {
        at_gate_.push_back(&passage);
        if (!gate_timer_.armed()) gate_timer_.arm(clock_.now() + gate_interval);
        return;
    }
    if (passage.delay == rtrs::Duration{0}) return go_on(passage);
    passage.timer.arm(clock_.now() + passage.delay);
}

void DelayStorage::go_on(Passage& passage) {
    if (passage.inner_done) return leave(passage);
    inner_->submit(passage);
}

void DelayStorage::look_at_gate() {
    if (gate_exists()) {
        gate_timer_.arm(clock_.now() + gate_interval);
        return;
    }
    gate_arrived_ = 0;
    while (!at_gate_.empty()) {
        Passage& first = *at_gate_.front();
        at_gate_.pop_front();
        wait(first);
    }
}

// Told in a turn of its own: the inner storage is still busy with the passage, which the handler
// may destroy together with it.
void DelayStorage::leave(Passage& passage) {
    free_.push_back(&passage);
    deferred_.add(*passage.original, passage.error);
}

}  // namespace rnbd
