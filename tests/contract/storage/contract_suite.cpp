// What every storage promises, whatever it is made of.
#include <algorithm>
#include <optional>

#include "rtrs/base/random.h"
#include "tests/contract/storage/support.h"
#include "tests/skip.h"

using namespace rnbd;
using namespace rnbd::testing;

namespace {

// Those that can be made here; the others are named.
template <typename Body>
void for_every_case(Body body) {
    bool any = false;
    for (const Case& each : cases()) {
        INFO("storage: " << each.name);
        try {
            body(each);
            any = true;
        } catch (const Unavailable& unavailable) {
            skip_part(each.name + ": " + unavailable.reason);
        }
    }
    if (!any) skip("none of the storages can be made here");
}

template <typename Body>
void on_every_storage(Body body) {
    for_every_case([&](const Case& each) {
        Bench bench;
        const StorageOptions options = each.make();
        const std::error_code error = bench.open(options);
        INFO(bench.last_text);
        REQUIRE(!error);
        body(bench, each, options);
    });
}

// The storage's blocks as they must be, and requests in flight on disjoint ranges of it.
class Model {
  public:
    static constexpr std::size_t slots = 8;
    static constexpr std::size_t slot_bytes = 256u << 10;

    Model(Bench& bench, const Case& storage, std::uint64_t seed)
        : bench_(bench), case_(storage), random_(seed), block_(geometry().logical_block_bytes) {
        contents_.resize(geometry().size_bytes);
        for (std::size_t i = 0; i < slots; ++i) {
            pages_.push_back(std::make_unique<Pages>(slot_bytes));
            buffers_.push_back(bench.reactor->register_buffer(pages_[i]->bytes()).value());
        }
    }
    ~Model() {
        for (const auto buffer : buffers_) bench_.reactor->unregister_buffer(buffer);
    }

    void step() {
        const std::size_t slot = random_.below(slots);
        if (requests_[slot]) return settle(slot);
        start(slot);
    }
    void settle_all() {
        for (std::size_t i = 0; i < slots; ++i) {
            if (requests_[i]) settle(i);
        }
    }
    const std::vector<std::byte>& contents() const { return contents_; }

  private:
    const StorageGeometry& geometry() const { return bench_.storage->geometry(); }

    bool overlaps(std::uint64_t offset, std::uint64_t bytes) const {
        return std::ranges::any_of(requests_, [&](const std::optional<TestRequest>& other) {
            return other && offset < other->offset + other->bytes && other->offset < offset + bytes;
        });
    }

    void start(std::size_t slot) {
        const std::uint64_t bytes =
            block_ * (1 + random_.below(random_.chance(1, 4) ? slot_bytes / block_ : 16));
        const std::uint64_t offset =
            block_ * random_.below((geometry().size_bytes - bytes) / block_ + 1);
        if (overlaps(offset, bytes)) return;
        TestRequest& request = requests_[slot].emplace();
        constexpr BlockOperation operations[] = {
            BlockOperation::read,    BlockOperation::read,        BlockOperation::write,
            BlockOperation::write,   BlockOperation::flush,       BlockOperation::discard,
            BlockOperation::discard, BlockOperation::write_zeroes};
        request.operation = operations[random_.below(std::size(operations))];
        if (request.operation == BlockOperation::discard && geometry().discard_bytes_max == 0) {
            request.operation = BlockOperation::write_zeroes;
        }
        request.offset = request.operation == BlockOperation::flush ? 0 : offset;
        request.bytes = request.operation == BlockOperation::flush ? 0 : bytes;
        request.force_unit_access = random_.chance(1, 4);
        request.no_unmap = random_.chance(1, 3);
        request.data = pages_[slot]->bytes().first(bytes);
        if (random_.chance(1, 2)) request.fixed_buffer = buffers_[slot];
        if (request.operation == BlockOperation::write) {
            for (std::byte& byte : request.data) byte = static_cast<std::byte>(random_.next());
        }
        bench_.submit(request);
    }

    void settle(std::size_t slot) {
        TestRequest& request = *requests_[slot];
        bench_.finish(request);
        INFO("operation " << static_cast<int>(request.operation) << " at " << request.offset
                          << ", bytes " << request.bytes << ": " << request.error.message());
        REQUIRE(!request.error);
        std::byte* const place = contents_.data() + request.offset;
        switch (request.operation) {
            case BlockOperation::read:
                REQUIRE(std::memcmp(place, request.data.data(), request.bytes) == 0);
                break;
            case BlockOperation::write:
                if (case_.keeps_data) std::memcpy(place, request.data.data(), request.bytes);
                break;
            case BlockOperation::discard:
                if (!case_.discard_zeroes) {  // then it may be either: look
                    REQUIRE(bench_.read(request.offset, request.data) == 0);
                    std::memcpy(place, request.data.data(), request.bytes);
                    break;
                }
                [[fallthrough]];
            case BlockOperation::write_zeroes:
                std::memset(place, 0, request.bytes);
                break;
            case BlockOperation::flush:
                break;
        }
        requests_[slot].reset();
    }

    Bench& bench_;
    const Case& case_;
    rtrs::Random random_;
    std::uint64_t block_;
    std::vector<std::byte> contents_;
    std::vector<std::unique_ptr<Pages>> pages_;
    std::vector<rtrs::Reactor::FixedBuffer> buffers_;
    std::optional<TestRequest> requests_[slots];
};

void compare_all(Bench& bench, const std::vector<std::byte>& expected) {
    Pages all(expected.size());
    REQUIRE(bench.read(0, all.bytes()) == 0);
    REQUIRE(std::memcmp(all.data(), expected.data(), expected.size()) == 0);
}

}  // namespace

TEST_CASE("storage: its geometry makes sense") {
    on_every_storage([](Bench& bench, const Case&, const StorageOptions& options) {
        const StorageGeometry& geometry = bench.storage->geometry();
        REQUIRE(geometry.size_bytes == case_size_bytes);
        REQUIRE(geometry.logical_block_bytes == options.logical_block_bytes);
        REQUIRE(geometry.physical_block_bytes >= geometry.logical_block_bytes);
        REQUIRE(geometry.physical_block_bytes % geometry.logical_block_bytes == 0);
        REQUIRE(geometry.discard_bytes_max % geometry.logical_block_bytes == 0);
        REQUIRE(geometry.write_zeroes_bytes_max > 0);
        if (geometry.discard_bytes_max > 0) REQUIRE(geometry.discard_granularity_bytes > 0);
        REQUIRE(!bench.storage->description().empty());
        REQUIRE(!bench.storage->check());
    });
}

TEST_CASE("storage: its cache has an epoch, which ends with what was in it") {
    on_every_storage([](Bench& bench, const Case& storage, const StorageOptions& options) {
        const std::uint64_t epoch = bench.storage->geometry().cache_epoch;
        REQUIRE(epoch != 0);
        bench.close();
        REQUIRE(!bench.open(options));
        const bool same = bench.storage->geometry().cache_epoch == epoch;
        const bool lasts = storage.persistent && storage.keeps_epoch;
        REQUIRE(same == (lasts || !storage.keeps_data));
    });
}

TEST_CASE("storage: a new one is all zeroes, the last block included") {
    on_every_storage([](Bench& bench, const Case&, const StorageOptions&) {
        const std::uint32_t block = bench.storage->geometry().logical_block_bytes;
        Pages pages(case_size_bytes);
        pages.fill(0xee);
        REQUIRE(bench.read(0, pages.bytes()) == 0);
        REQUIRE(pages.all(0, 0, case_size_bytes));
        pages.fill(0xee);
        REQUIRE(bench.read(case_size_bytes - block, pages.bytes().first(block)) == 0);
        REQUIRE(pages.all(0, 0, block));
    });
}

TEST_CASE("storage: what was written is read, neighbours stay") {
    on_every_storage([](Bench& bench, const Case& storage, const StorageOptions&) {
        const std::uint32_t block = bench.storage->geometry().logical_block_bytes;
        Pages pages(3 * block < 4096 ? 4096 : 3 * block);
        pages.fill(0xaa);
        for (const Flag flag : {Flag::none, Flag::fua}) {
            REQUIRE(bench.write(block, pages.bytes().first(block), flag) == 0);
        }
        REQUIRE(bench.flush() == 0);
        pages.fill(0xee);
        REQUIRE(bench.read(0, pages.bytes().first(3 * block)) == 0);
        REQUIRE(pages.all(0, 0, block));
        REQUIRE(pages.all(storage.keeps_data ? 0xaa : 0, block, block));
        REQUIRE(pages.all(0, 2 * block, block));
    });
}

TEST_CASE("storage: write_zeroes zeroes, with every flag, and leaves the neighbours") {
    on_every_storage([](Bench& bench, const Case& storage, const StorageOptions&) {
        const std::uint32_t block = bench.storage->geometry().logical_block_bytes;
        Pages pages(64 * block);
        for (const Flag flag : {Flag::none, Flag::fua, Flag::no_unmap, Flag::fast}) {
            pages.fill(0xaa);
            REQUIRE(bench.write(0, pages.bytes()) == 0);
            const int error = bench.write_zeroes(block, 61 * block, flag);
            if (flag == Flag::fast && error == EOPNOTSUPP) continue;
            REQUIRE(error == 0);
            REQUIRE(bench.read(0, pages.bytes()) == 0);
            REQUIRE(pages.all(storage.keeps_data ? 0xaa : 0, 0, block));
            REQUIRE(pages.all(0, block, 61 * block));
            REQUIRE(pages.all(storage.keeps_data ? 0xaa : 0, 62 * block, 2 * block));
        }
    });
}

TEST_CASE("storage: discard leaves the neighbours") {
    on_every_storage([](Bench& bench, const Case& storage, const StorageOptions&) {
        if (bench.storage->geometry().discard_bytes_max == 0) {
            skip_part(storage.name + ": has no discard");
            return;
        }
        const std::uint32_t block = bench.storage->geometry().logical_block_bytes;
        Pages pages(64 * block);
        for (const Flag flag : {Flag::none, Flag::fua}) {
            pages.fill(0xaa);
            REQUIRE(bench.write(0, pages.bytes()) == 0);
            REQUIRE(bench.discard(block, 61 * block, flag) == 0);
            REQUIRE(bench.read(0, pages.bytes()) == 0);
            REQUIRE(pages.all(storage.keeps_data ? 0xaa : 0, 0, block));
            if (storage.discard_zeroes) REQUIRE(pages.all(0, block, 61 * block));
            REQUIRE(pages.all(storage.keeps_data ? 0xaa : 0, 62 * block, 2 * block));
        }
    });
}

TEST_CASE("storage: random requests in flight together agree with a byte array") {
    on_every_storage([](Bench& bench, const Case& storage, const StorageOptions& options) {
        Model model(bench, storage, 20240607);
        for (int i = 0; i < 1500; ++i) model.step();
        model.settle_all();
        compare_all(bench, model.contents());
        if (!storage.persistent) return;
        REQUIRE(bench.flush() == 0);
        bench.close();
        const std::error_code reopened = bench.open(options);
        INFO(bench.last_text);
        REQUIRE(!reopened);
        compare_all(bench, model.contents());
    });
}

TEST_CASE("storage: opened read only it reads and flushes, and refuses all else with EROFS") {
    on_every_storage([](Bench& bench, const Case& storage, const StorageOptions& options) {
        const std::uint32_t block = bench.storage->geometry().logical_block_bytes;
        Pages pages(4096);
        pages.fill(0x11);
        REQUIRE(bench.write(0, pages.bytes()) == 0);
        bench.close();
        StorageOptions read_only = options;
        read_only.use = StorageOptions::Use::read_only;
        REQUIRE(!bench.open(read_only));
        REQUIRE(bench.write(0, pages.bytes()) == EROFS);
        REQUIRE(bench.write_zeroes(0, block) == EROFS);
        REQUIRE(bench.discard(0, block) == EROFS);
        REQUIRE(bench.flush() == 0);
        pages.fill(0xee);
        REQUIRE(bench.read(0, pages.bytes()) == 0);
        REQUIRE(pages.all(storage.persistent ? 0x11 : 0, 0, 4096));
    });
}

TEST_CASE(
    "storage: a handler may submit again, and may destroy the storage after the last request") {
    struct Chain : BlockRequest {
        explicit Chain(Bench& owner) : BlockRequest(&done), bench(owner) {}
        static void done(BlockRequest& request, std::error_code error) {
            auto& self = static_cast<Chain&>(request);
            REQUIRE(!error);
            if (++self.rounds < 20) {
                self.bench.storage->submit(self);
            } else {
                self.bench.close();
            }
        }
        Bench& bench;
        int rounds = 0;
    };
    on_every_storage([](Bench& bench, const Case&, const StorageOptions&) {
        Pages pages(4096);
        Chain chain(bench);
        chain.operation = BlockOperation::write;
        chain.bytes = 4096;
        chain.data = pages.bytes();
        bench.storage->submit(chain);
        while (chain.rounds < 20) bench.reactor->run_once(std::nullopt);
        REQUIRE(bench.storage == nullptr);
    });
}

TEST_CASE("storage: extents, where they can be told, cover the range and never call data a hole") {
    on_every_storage([](Bench& bench, const Case& storage, const StorageOptions&) {
        if (!bench.storage->geometry().extents) return;
        Pages pages(8192);
        pages.fill(0x77);
        for (const std::uint64_t at : {65536, 262144, 1048576}) {
            REQUIRE(bench.write(at, pages.bytes()) == 0);
        }
        for (const std::size_t extents_max : {1, 2, 100}) {
            const auto extents = bench.extents(4096, case_size_bytes - 8192, extents_max);
            REQUIRE(extents);
            REQUIRE(!extents->empty());
            REQUIRE(extents->size() <= extents_max);
            std::uint64_t at = 4096;
            for (const StorageExtent& extent : *extents) {
                REQUIRE(extent.bytes > 0);
                REQUIRE(extent.bytes % bench.storage->geometry().logical_block_bytes == 0);
                if (extent.zero) {
                    Pages seen(extent.bytes);
                    REQUIRE(bench.read(at, seen.bytes()) == 0);
                    REQUIRE(seen.all(0, 0, extent.bytes));
                }
                at += extent.bytes;
            }
            REQUIRE(at <= case_size_bytes - 4096);
            if (extents_max == 100) REQUIRE(at == case_size_bytes - 4096);
        }
        if (storage.keeps_data) {  // a file system that tells nothing would say "data", once
            const auto extents = bench.extents(0, case_size_bytes, 100);
            if (extents->size() == 1) skip_part(storage.name + ": the file system shows no holes");
        }
    });
}

TEST_CASE("storage: wrong options are refused by name") {
    for_every_case([](const Case& each) {
        StorageOptions options = each.make();
        Bench bench;
        options.logical_block_bytes = 1024;
        REQUIRE(bench.open(options) == std::errc::invalid_argument);
        options.logical_block_bytes = 4096;
        options.size_bytes = 4097;
        REQUIRE(bench.open(options) == std::errc::invalid_argument);
        options.size_bytes = 0;
        REQUIRE(bench.open(options) == std::errc::invalid_argument);
    });
}
