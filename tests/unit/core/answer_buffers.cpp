#include "rtrs/core/answer_buffers.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <set>

using namespace rtrs;

namespace {

constexpr std::uint32_t buffer_bytes = 8192;

class Region final : public MemoryRegion {
  public:
    explicit Region(MutableBytes memory) : memory_(memory) {}
    Key key() const noexcept override { return 1; }
    std::byte* data() const noexcept override { return memory_.data(); }
    std::uint64_t bytes() const noexcept override { return memory_.size(); }

  private:
    MutableBytes memory_;
};

class Domain final : public ProtectionDomain {
  public:
    std::expected<std::unique_ptr<MemoryRegion>, std::error_code> register_memory(
        MutableBytes memory, Access access) override {
        ++asked;
        CHECK(access == Access::local);
        if (refuses) return std::unexpected(from_errno(ENOMEM));
        registered = memory;
        return std::make_unique<Region>(memory);
    }
    std::expected<std::unique_ptr<MemoryWindows>, std::error_code> create_windows(
        MemoryRegion&, std::uint32_t) override {
        return std::unexpected(from_errno(EOPNOTSUPP));
    }
    bool refuses = false;
    int asked = 0;
    MutableBytes registered{};
};

}  // namespace

TEST_CASE("answer buffers are registered once, and lie beside each other") {
    Domain domain;
    AnswerBuffers buffers;
    CHECK(!buffers.take());
    REQUIRE(buffers.make(domain, buffer_bytes));
    REQUIRE(buffers.make(domain, buffer_bytes));
    CHECK(domain.asked == 1);
    CHECK(domain.registered.size() == AnswerBuffers::count * buffer_bytes);

    std::set<std::byte*> seen;
    for (std::uint32_t i = 0; i < AnswerBuffers::count; ++i) {
        const auto number = buffers.take();
        REQUIRE(number);
        std::byte* const data = buffers.data(*number);
        CHECK(seen.insert(data).second);
        CHECK(data >= domain.registered.data());
        CHECK(data + buffer_bytes <= domain.registered.data() + domain.registered.size());
    }
    CHECK(!buffers.take());
}

TEST_CASE("the answer buffer that was given back is the next, though others were never used") {
    Domain domain;
    AnswerBuffers buffers;
    REQUIRE(buffers.make(domain, buffer_bytes));
    const std::uint32_t first = buffers.take().value();
    const std::uint32_t second = buffers.take().value();
    buffers.give_back(first);
    CHECK(buffers.take() == first);
    buffers.give_back(second);
    CHECK(buffers.take() == second);
}

TEST_CASE("a domain that has no room for answer buffers is not asked again") {
    Domain domain;
    domain.refuses = true;
    AnswerBuffers buffers;
    CHECK(!buffers.make(domain, buffer_bytes));
    domain.refuses = false;
    CHECK(!buffers.make(domain, buffer_bytes));
    CHECK(domain.asked == 1);
    CHECK(!buffers.take());
}
