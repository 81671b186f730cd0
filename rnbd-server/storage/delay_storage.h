// Makes another storage slower on purpose: for tests, and for rehearsing what a slow disk does.
//
//   when: before   wait -> the inner storage -> completed
//   when: after    the inner storage -> wait -> completed
//   wait           at the gate (looked at again every 20 ms while something waits there), then for
//                  the sum of the operation's delays
//
// The delay of an operation is decided when it arrives: how long it is, whether the operation is
// one of `every`, and whether the gate holds it. The order of operations is not kept.
//
// OWNER: a Volume. THREAD: the clock's. LIFE: storage.h; a handler may destroy the storage if its
// request was the last.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/deferred_completions.h"
#include "rnbd-server/storage_options.h"
#include "rtrs/base/clock.h"

namespace rnbd {

class DelayStorage final : public Storage {
  public:
    DelayStorage(rtrs::Clock& clock, DeferredCompletions& deferred, std::unique_ptr<Storage> inner,
                 DelayOptions options);
    ~DelayStorage() override;

    const StorageGeometry& geometry() const noexcept override { return inner_->geometry(); }
    void submit(BlockRequest& request) override;
    std::function<std::error_code()> flush_aside() override { return inner_->flush_aside(); }
    void extents(ExtentsRequest& request) override { inner_->extents(request); }
    std::error_code check() noexcept override { return inner_->check(); }
    std::expected<std::uint64_t, StorageError> measure() const override {
        return inner_->measure();
    }
    std::optional<std::uint64_t> last_measured() const noexcept override {
        return inner_->last_measured();
    }
    std::expected<void, StorageError> resize(std::uint64_t bytes) override {
        return inner_->resize(bytes);
    }
    std::expected<void, StorageError> may_resize(std::uint64_t bytes) const override {
        return inner_->may_resize(bytes);
    }
    void when_writes_are_lost(std::function<void()> lost) override {
        inner_->when_writes_are_lost(std::move(lost));
    }
    std::string trouble() const override { return inner_->trouble(); }
    std::string give_up() override { return inner_->give_up(); }
    bool was_created() const noexcept override { return inner_->was_created(); }
    std::string description() const override {
        return inner_->description() + ", delayed on purpose";
    }

  private:
    // A request on its way through: the request that the inner storage gets in its place.
    struct Passage;

    Passage& enter(BlockRequest& request);
    rtrs::Duration delay_of(BlockOperation operation);
    bool held_by_gate(BlockOperation operation);
    bool gate_exists() const noexcept;
    void wait(Passage& passage);
    void go_on(Passage& passage);
    void look_at_gate();
    void leave(Passage& passage);

    rtrs::Clock& clock_;
    const DelayOptions options_;
    std::unique_ptr<Storage> inner_;
    std::uint64_t arrived_ = 0;
    std::uint32_t gate_arrived_ = 0;  // operations since the gate exists
    rtrs::Timer gate_timer_;
    std::deque<Passage*> at_gate_;
    std::vector<std::unique_ptr<Passage>> passages_;
    std::vector<Passage*> free_;
    DeferredCompletions& deferred_;
};

}  // namespace rnbd
