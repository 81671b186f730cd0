// What the files of ServerPath share: server_path.cpp (its life) and server_path_requests.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "rtrs/base/assert.h"
#include "rtrs/base/lazy_queue.h"
#include "rtrs/core/send_signals.h"
#include "rtrs/core/server_path.h"

namespace rtrs {

// The work requests of one answer, except its bind. Only those that are added are constructed,
// because that takes longer than all the rest.
class AnswerChain {
  public:
    static constexpr std::uint32_t works_max = 3;  // write, invalidate, answer

    AnswerChain() noexcept {}
    WorkRequest& add(WorkOpcode opcode) noexcept {
        RTRS_ASSERT(count_ < works_max);
        WorkRequest& work = *std::construct_at(&works_[count_++]);
        work.opcode = opcode;
        return work;
    }
    std::span<WorkRequest> works() noexcept { return {works_, count_}; }

  private:
    union {
        WorkRequest works_[works_max];
    };
    std::uint32_t count_ = 0;
};

struct ServerPath::Connection final : EndpointHandler {
    // Contexts of work requests and receives that are not for requests.
    static constexpr std::uint64_t info_request_context = UINT64_MAX;
    static constexpr std::uint64_t last_words_context = UINT64_MAX - 1;
    static constexpr std::uint64_t info_response_context = UINT64_MAX - 2;
    // Context of an answer: 0, or this plus the number of its answer buffer.
    static constexpr std::uint64_t answer_buffer_context = 1;
    // Work requests of one answer and its bind.
    static constexpr std::uint32_t answer_work_max = AnswerChain::works_max + 1;

    Connection(ServerPath& its_path, std::uint16_t its_id) : path(its_path), id(its_id) {}

    void on_established(Bytes) override { established = true; }
    void on_rejected(Bytes) override { path.close("connection rejected"); }
    void on_completion(const Completion& completion) override { path.completed(*this, completion); }
    void on_disconnected(std::error_code reason) override {
        place.give_back();
        path.connection_ended(reason);
    }
    void on_drained() override {
        endpoint.reset();
        path.finish_if_done();
    }

    // work: if it asks for a signal, that comes from `signals`.
    std::error_code post(std::span<const WorkRequest> work) {
        const std::error_code error = endpoint->post(work);
        if (error) signals.not_posted();
        return error;
    }

    ServerPath& path;
    std::uint16_t id;
    bool established = false;
    bool disconnecting = false;
    std::unique_ptr<Endpoint> endpoint;
    WorkerShares::Place place;  // if its fabric knows nearest workers
    // At how many heartbeats after an answer it is checked whether that arrives: by the last of
    // them TCP has retransmitted. An idle connection costs nothing.
    static constexpr std::uint8_t looks_behind_answer = 3;
    std::uint8_t looks_left = 0;
    std::optional<Instant> takes_nothing_since;  // as far as that was checked
    SendSignals signals;
    // Answers for which the send queue had no place.
    LazyQueue<OpSlot*> waiting;
    bool last_word_waits = false;
};

}  // namespace rtrs
