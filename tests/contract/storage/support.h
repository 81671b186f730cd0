// What the storage tests share: a storage on a reactor, asked one request at a time, and the list
// of storages that the contract suite runs on.
#pragma once

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/deferred_completions.h"
#include "rnbd-server/storage/open_storage.h"

namespace rnbd::testing {

// One storage that the suite runs on.
struct Case {
    std::string name;
    // Makes a fresh one of zeroes; may throw Unavailable.
    std::function<StorageOptions()> make;
    bool keeps_data = true;      // null does not
    bool persistent = true;      // the data is there when it is opened again
    bool discard_zeroes = true;  // discarded blocks read as zeroes
    bool keeps_epoch = true;     // if it is persistent
};
struct Unavailable {
    std::string reason;
};
constexpr std::uint64_t case_size_bytes = 2u << 20;

// Provided by plain_cases.cpp or root_cases.cpp.
const std::vector<Case>& cases();

class TemporaryFolder {
  public:
    TemporaryFolder() {
        const char* parent = std::getenv("TMPDIR");
        std::string name = std::string(parent != nullptr ? parent : "/tmp") + "/storage-XXXXXX";
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::string file(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

// Root without root's rights to files, in this thread; nothing changes for others.
class WithoutRootsRights {
  public:
    WithoutRootsRights() { ::setfsuid(65534); }
    ~WithoutRootsRights() { ::setfsuid(::geteuid()); }
    WithoutRootsRights(const WithoutRootsRights&) = delete;
    WithoutRootsRights& operator=(const WithoutRootsRights&) = delete;
};

// Page aligned memory, as the server's chunks are.
class Pages {
  public:
    explicit Pages(std::size_t bytes) : bytes_(bytes) {
        void* memory =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(memory != MAP_FAILED);
        memory_ = static_cast<std::byte*>(memory);
    }
    ~Pages() { ::munmap(memory_, bytes_); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    rtrs::MutableBytes bytes() const { return {memory_, bytes_}; }
    std::byte* data() const { return memory_; }
    void fill(int value) { std::memset(memory_, value, bytes_); }
    bool all(int value, std::size_t from, std::size_t count) const {
        for (std::size_t i = from; i < from + count; ++i) {
            if (memory_[i] != static_cast<std::byte>(value)) return false;
        }
        return true;
    }

  private:
    std::byte* memory_;
    std::size_t bytes_;
};

struct TestRequest : BlockRequest {
    TestRequest() : BlockRequest(&done) {}
    static void done(BlockRequest& request, std::error_code error) {
        auto& self = static_cast<TestRequest&>(request);
        REQUIRE(!self.submitting);
        REQUIRE(!self.finished);
        self.finished = true;
        self.error = error;
    }
    bool submitting = false;
    bool finished = false;
    std::error_code error;
};

enum class Flag : std::uint8_t { none, fua, no_unmap, fast };

// A reactor and at most one storage on it.
class Bench {
  public:
    Bench()
        : reactor(std::move(*rtrs::Reactor::create())),
          deferred(std::make_unique<DeferredCompletions>(*reactor)) {}
    ~Bench() {
        close();
        // What it still had with the kernel ends in turns of its own.
        for (int i = 0; i < 3; ++i) reactor->run_once(rtrs::Duration::zero());
    }

    std::error_code open(const StorageOptions& options) {
        StorageOpening begun;
        const auto to_be_tried_again = [](std::error_code error) {
            return error == std::errc::operation_in_progress ||
                   error == std::errc::connection_already_in_progress ||
                   error == std::errc::timed_out;
        };
        auto opened = open_storage(*reactor, *deferred, options, begun);
        while (!opened && to_be_tried_again(opened.error().code)) {
            opened = open_storage(*reactor, *deferred, options, begun);
        }
        if (!opened) {
            INFO(opened.error().text);
            REQUIRE(!opened.error().text.empty());
            REQUIRE(opened.error().text.find('\n') == std::string::npos);
            last_text = opened.error().text;
            return opened.error().code;
        }
        storage = std::move(*opened);
        return {};
    }
    void close() { storage.reset(); }

    void submit(TestRequest& request) {
        request.finished = false;
        request.submitting = true;
        storage->submit(request);
        request.submitting = false;
    }
    // The same inside a turn, as the server does, which then goes on to its end.
    void submit_in_a_turn(TestRequest& request) {
        struct Task : rtrs::TurnTask {
            Task(Bench& its, TestRequest& wanted)
                : rtrs::TurnTask(&go), bench(its), request(wanted) {}
            static void go(rtrs::TurnTask& task) {
                auto& self = static_cast<Task&>(task);
                self.bench.submit(self.request);
            }
            Bench& bench;
            TestRequest& request;
        } task(*this, request);
        reactor->at_turn_end(task);
        reactor->run_once(rtrs::Duration::zero());
    }
    void finish(TestRequest& request) {
        while (!request.finished) reactor->run_once(std::nullopt);
    }
    // Submits and waits; the errno.
    int ask(BlockOperation operation, std::uint64_t offset, std::uint64_t bytes,
            rtrs::MutableBytes data = {}, Flag flag = Flag::none,
            rtrs::Reactor::FixedBuffer buffer = rtrs::Reactor::FixedBuffer::none) {
        TestRequest request;
        request.operation = operation;
        request.offset = offset;
        request.bytes = bytes;
        request.data = data;
        request.force_unit_access = flag == Flag::fua;
        request.no_unmap = flag == Flag::no_unmap;
        request.fast_only = flag == Flag::fast;
        request.fixed_buffer = buffer;
        submit_in_a_turn(request);
        finish(request);
        failed_alone = request.failed_alone;
        return request.error.value();
    }
    int read(std::uint64_t offset, rtrs::MutableBytes data) {
        return ask(BlockOperation::read, offset, data.size(), data);
    }
    int write(std::uint64_t offset, rtrs::MutableBytes data, Flag flag = Flag::none) {
        return ask(BlockOperation::write, offset, data.size(), data, flag);
    }
    int flush() { return ask(BlockOperation::flush, 0, 0); }
    int discard(std::uint64_t offset, std::uint64_t bytes, Flag flag = Flag::none) {
        return ask(BlockOperation::discard, offset, bytes, {}, flag);
    }
    int write_zeroes(std::uint64_t offset, std::uint64_t bytes, Flag flag = Flag::none) {
        return ask(BlockOperation::write_zeroes, offset, bytes, {}, flag);
    }

    std::expected<std::vector<StorageExtent>, std::error_code> extents(std::uint64_t offset,
                                                                       std::uint64_t bytes,
                                                                       std::size_t extents_max) {
        struct Question final : ExtentsRequest {
            Question() : ExtentsRequest(&answered) {}
            static void answered(ExtentsRequest& request, std::error_code error) {
                auto& self = static_cast<Question&>(request);
                REQUIRE(!self.result);
                self.result = error;
            }
            std::optional<std::error_code> result;
        } question;
        question.offset = offset;
        question.bytes = bytes;
        question.extents_max = extents_max;
        storage->extents(question);
        while (!question.result) reactor->run_once(std::nullopt);
        if (*question.result) return std::unexpected(*question.result);
        return std::move(question.found);
    }

    std::unique_ptr<rtrs::Reactor> reactor;
    std::unique_ptr<DeferredCompletions> deferred;
    std::unique_ptr<Storage> storage;
    std::string last_text;
    bool failed_alone = false;  // as the last ask() has it
};

}  // namespace rnbd::testing
