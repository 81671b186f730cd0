#include "tests/unit/verbs/fake_tag_provider.h"

#include <cerrno>
#include <cstring>

#include "rtrs/base/assert.h"

#undef ibv_reg_mr

namespace rtrs {

// As function pointers of the context, of the queue and of the completion queue.
struct FakeTagProviderCalls {
    using Call = FakeTagProvider::Call;
    static FakeTagProvider& of(ibv_cq_ex* cq) { return FakeTagProvider::of(cq->context); }

    static int query_device(ibv_context* context, const ibv_query_device_ex_input*,
                            ibv_device_attr_ex* attributes, std::size_t bytes) {
        const FakeTagProvider& self = FakeTagProvider::of(context);
        if (self.failing == Call::query_device) return EIO;
        RTRS_ASSERT(bytes == sizeof *attributes);
        std::memset(attributes, 0, bytes);
        attributes->tm_caps = self.caps_;
        return 0;
    }
    static ibv_cq_ex* create_completions(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
        FakeTagProvider& self = FakeTagProvider::of(context);
        if (self.failing == Call::create_completions) {
            errno = ENOMEM;
            return nullptr;
        }
        self.cq_attributes_ = *attributes;
        self.objects_ |= FakeTagProvider::completion_queue;
        ibv_cq_ex& cq = self.completions_;
        cq.context = context;
        cq.cqe = attributes->cqe;
        cq.start_poll = start_poll;
        cq.next_poll = next_poll;
        cq.end_poll = end_poll;
        cq.read_opcode = [](ibv_cq_ex* it) { return of(it).current().opcode; };
        cq.read_wc_flags = [](ibv_cq_ex* it) { return of(it).current().flags; };
        cq.read_byte_len = [](ibv_cq_ex* it) {
            RTRS_ASSERT((of(it).cq_attributes_.wc_flags & IBV_WC_EX_WITH_BYTE_LEN) != 0);
            return of(it).current().bytes;
        };
        cq.read_qp_num = [](ibv_cq_ex* it) {
            RTRS_ASSERT((of(it).cq_attributes_.wc_flags & IBV_WC_EX_WITH_QP_NUM) != 0);
            return of(it).current().queue_pair;
        };
        cq.read_tm_info = [](ibv_cq_ex* it, ibv_wc_tm_info* info) {
            RTRS_ASSERT((of(it).cq_attributes_.wc_flags & IBV_WC_EX_WITH_TM_INFO) != 0);
            RTRS_ASSERT((of(it).current().flags & IBV_WC_TM_MATCH) != 0);
            *info = of(it).current().tag;
        };
        return &cq;
    }
    static int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
        RTRS_ASSERT(!of(cq).polling_ && attributes->comp_mask == 0);
        if (of(cq).failing == Call::start_poll) return EIO;
        const int result = next_poll(cq);
        of(cq).polling_ = result == 0;
        return result;
    }
    static int next_poll(ibv_cq_ex* cq) {
        FakeTagProvider& self = of(cq);
        if (self.completions.empty()) return ENOENT;
        self.current_ = self.completions.front();
        self.completions.pop_front();
        cq->wr_id = self.current_.id;
        cq->status = self.current_.status;
        if (self.polled) self.polled(self.current_);
        return 0;
    }
    static void end_poll(ibv_cq_ex* cq) {
        RTRS_ASSERT(of(cq).polling_);
        of(cq).polling_ = false;
    }
    static ibv_srq* create_queue(ibv_context* context, ibv_srq_init_attr_ex* attributes) {
        FakeTagProvider& self = FakeTagProvider::of(context);
        if (self.failing == Call::create_queue) {
            errno = EINVAL;
            return nullptr;
        }
        self.queue_attributes_ = *attributes;
        self.objects_ |= FakeTagProvider::queue;
        self.queue_.context = context;
        return &self.queue_;
    }
    static int post_operations(ibv_srq* queue, ibv_ops_wr* operation, ibv_ops_wr** refused) {
        FakeTagProvider& self = FakeTagProvider::of(queue->context);
        RTRS_ASSERT(!self.polling_);
        for (; operation != nullptr; operation = operation->next) {
            if (const int error = self.operate(*operation)) {
                *refused = operation;
                return error;
            }
        }
        return 0;
    }
    static int post_receive(ibv_srq* queue, ibv_recv_wr* work, ibv_recv_wr** refused) {
        FakeTagProvider& self = FakeTagProvider::of(queue->context);
        RTRS_ASSERT(!self.polling_ && work->next == nullptr && work->num_sge == 1);
        const bool full = self.receives.size() == self.queue_attributes_.attr.max_wr;
        if (full || self.failing == Call::post_receive) {
            *refused = work;
            return ENOMEM;
        }
        self.receives.push_back({.id = work->wr_id, .buffer = self.memory(*work->sg_list)});
        return 0;
    }
    static int arm(ibv_cq* cq, int) {
        ++FakeTagProvider::of(cq->context).armed;
        return 0;
    }
};

FakeTagProvider::FakeTagProvider(const ibv_tm_caps& caps) : caps_(caps) {
    context_.provider = this;
    verbs_context& verbs = context_.verbs;
    verbs.sz = sizeof verbs;
    verbs.query_device_ex = FakeTagProviderCalls::query_device;
    verbs.create_cq_ex = FakeTagProviderCalls::create_completions;
    verbs.create_srq_ex = FakeTagProviderCalls::create_queue;
    verbs.post_srq_ops = FakeTagProviderCalls::post_operations;
    verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    verbs.context.ops.post_srq_recv = FakeTagProviderCalls::post_receive;
    verbs.context.ops.req_notify_cq = FakeTagProviderCalls::arm;
    domain_.context = context();
}

FakeTagProvider::~FakeTagProvider() { RTRS_ASSERT(objects_ == 0); }

FakeTagProvider& FakeTagProvider::of(ibv_context* context) noexcept {
    return *reinterpret_cast<Context*>(verbs_get_ctx(context))->provider;
}

ibv_mr* FakeTagProvider::register_memory(void* address, std::size_t bytes) {
    if (failing == Call::register_memory) {
        errno = ENOMEM;
        return nullptr;
    }
    objects_ |= region;
    region_.context = context();
    region_.addr = address;
    region_.length = bytes;
    region_.lkey = 0x1234;
    return &region_;
}

void FakeTagProvider::destroyed(Object object) {
    RTRS_ASSERT((objects_ & object) != 0);
    // The queue uses the completion queue, and both the memory.
    RTRS_ASSERT(object != completion_queue || (objects_ & queue) == 0);
    RTRS_ASSERT(object != region || objects_ == region);
    objects_ &= ~static_cast<unsigned>(object);
}

MutableBytes FakeTagProvider::memory(const ibv_sge& segment) const {
    RTRS_ASSERT((objects_ & region) != 0 && segment.lkey == region_.lkey);
    auto* const data = reinterpret_cast<std::byte*>(segment.addr);
    auto* const first = static_cast<std::byte*>(region_.addr);
    RTRS_ASSERT(data >= first && segment.length <= region_.length &&
                data + segment.length <= first + region_.length);
    return {data, segment.length};
}

MutableBytes FakeTagProvider::buffer_of(const ibv_ops_wr& operation) const {
    RTRS_ASSERT(operation.opcode == IBV_WR_TAG_ADD && operation.tm.add.num_sge == 1);
    return memory(*operation.tm.add.sg_list);
}

const FakeTagProvider::Completion& FakeTagProvider::current() const {
    // Of a completion with any other status, only its id means something.
    const bool whole =
        current_.status == IBV_WC_SUCCESS || current_.status == IBV_WC_TM_RNDV_INCOMPLETE;
    RTRS_ASSERT(polling_ && whole);
    return current_;
}

}  // namespace rtrs

extern "C" {

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t bytes, int) {
    return rtrs::FakeTagProvider::of(domain->context).register_memory(address, bytes);
}
int ibv_dereg_mr(ibv_mr* region) {
    rtrs::FakeTagProvider::of(region->context).destroyed(rtrs::FakeTagProvider::region);
    return 0;
}
int ibv_destroy_cq(ibv_cq* completions) {
    rtrs::FakeTagProvider::of(completions->context)
        .destroyed(rtrs::FakeTagProvider::completion_queue);
    return 0;
}
int ibv_destroy_srq(ibv_srq* queue) {
    rtrs::FakeTagProvider::of(queue->context).destroyed(rtrs::FakeTagProvider::queue);
    return 0;
}
}
