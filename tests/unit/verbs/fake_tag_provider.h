// What libibverbs reaches of a device that matches tags, without a device: a context, a completion
// queue, a TM-SRQ and a memory region whose calls end here. What the device does is the test's.
//
// The parts of libibverbs that are functions (ibv_reg_mr, ibv_dereg_mr, ibv_destroy_cq,
// ibv_destroy_srq) are replaced in the whole program; the rest goes through the context.
//
// It asserts what a caller may not do: read what the completion does not have or what was not asked
// for, name memory that is not registered, post while it polls.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <functional>

#include "rtrs/base/bytes.h"

namespace rtrs {

class FakeTagProvider {
  public:
    struct Completion {
        std::uint64_t id = 0;
        ibv_wc_status status = IBV_WC_SUCCESS;
        ibv_wc_opcode opcode = IBV_WC_TM_SYNC;
        unsigned flags = 0;
        std::uint32_t bytes = 0;
        std::uint32_t queue_pair = 0;
        ibv_wc_tm_info tag{};
        // For `polled`: the tag in question, and how many completions of it are not awaited any
        // more.
        std::uint32_t handle = 0;
        unsigned ends = 0;
    };
    struct Receive {
        std::uint64_t id = 0;
        MutableBytes buffer{};
    };
    enum class Call : std::uint8_t {
        none,
        query_device,
        register_memory,
        create_completions,
        create_queue,
        post_receive,
        start_poll,
    };

    explicit FakeTagProvider(const ibv_tm_caps& caps);
    FakeTagProvider(const FakeTagProvider&) = delete;
    FakeTagProvider& operator=(const FakeTagProvider&) = delete;
    ~FakeTagProvider();

    ibv_context* context() noexcept { return &context_.verbs.context; }
    ibv_pd* domain() noexcept { return &domain_; }
    // Objects that were created and not yet destroyed.
    unsigned objects() const noexcept { return objects_; }

    // An operation of ibv_post_srq_ops: returns what that returns, sets the handle.
    std::function<int(ibv_ops_wr&)> operate;
    // The completion has been handed out.
    std::function<void(const Completion&)> polled;
    std::deque<Completion> completions;
    std::deque<Receive> receives;
    Call failing = Call::none;
    unsigned armed = 0;

    // The only buffer of an operation that adds a tag. ASSUMES: registered.
    MutableBytes buffer_of(const ibv_ops_wr& operation) const;
    // What the queue was made with.
    const ibv_srq_init_attr_ex& queue_attributes() const noexcept { return queue_attributes_; }
    const ibv_cq_init_attr_ex& completion_attributes() const noexcept { return cq_attributes_; }

    // --- For the functions that stand in for libibverbs.
    enum Object : unsigned { region = 1, completion_queue = 2, queue = 4 };
    static FakeTagProvider& of(ibv_context* context) noexcept;
    ibv_mr* register_memory(void* address, std::size_t bytes);
    void destroyed(Object object);

  private:
    struct Context {
        verbs_context verbs{};
        FakeTagProvider* provider = nullptr;
    };
    friend struct FakeTagProviderCalls;

    MutableBytes memory(const ibv_sge& segment) const;
    const Completion& current() const;

    ibv_tm_caps caps_;
    Context context_{};
    ibv_pd domain_{};
    ibv_mr region_{};
    ibv_cq_ex completions_{};
    ibv_srq queue_{};
    ibv_cq_init_attr_ex cq_attributes_{};
    ibv_srq_init_attr_ex queue_attributes_{};
    unsigned objects_ = 0;
    bool polling_ = false;
    Completion current_{};
};

}  // namespace rtrs
