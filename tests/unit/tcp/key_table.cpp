#include "rtrs/fabric/tcp/key_table.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <vector>

using namespace rtrs;
using tcp::KeyTable;

namespace {

struct Table : KeyTable {
    Table() : KeyTable(Random(3)) {}
    std::uint32_t slot() { return take(Kind::window).value(); }
    std::array<std::byte, 4096> memory{};
    std::uint64_t at(std::size_t offset) const {
        return reinterpret_cast<std::uint64_t>(memory.data()) + offset;
    }
};

constexpr Access writing = Access::remote_write;

}  // namespace

TEST_CASE("key table: opens its range, for its rights, to the byte") {
    Table table;
    const std::uint32_t slot = table.slot();
    const MutableBytes range = MutableBytes(table.memory).subspan(100, 50);
    const Key key = table.enable(slot, range, writing);
    CHECK(table.open(key, table.at(100), 50, writing) == range.data());
    CHECK(table.open(key, table.at(149), 1, writing) == range.data() + 49);
    CHECK(table.open(key, table.at(150), 0, writing) != nullptr);
    CHECK(table.open(key, table.at(99), 1, writing) == nullptr);
    CHECK(table.open(key, table.at(100), 51, writing) == nullptr);
    CHECK(table.open(key, table.at(150), 1, writing) == nullptr);
    CHECK(table.open(key, ~std::uint64_t{0}, 2, writing) == nullptr);
    CHECK(table.open(key, table.at(120), ~std::uint64_t{0}, writing) == nullptr);
    CHECK(table.open(key, table.at(100), 1, Access::remote_read) == nullptr);
    CHECK(table.open(key, table.at(100), 1, writing | Access::remote_read) == nullptr);
}

TEST_CASE("key table: a disabled or replaced key is dead") {
    Table table;
    const std::uint32_t slot = table.slot();
    const Key first = table.enable(slot, table.memory, writing);
    CHECK(table.find(first) == slot);
    table.disable(slot);
    CHECK(table.find(first) == 0);
    const Key second = table.enable(slot, table.memory, writing);
    CHECK(second != first);
    CHECK(table.find(first) == 0);
    CHECK(table.find(second) == slot);
    table.give_back(slot);
    CHECK(table.find(second) == 0);
    const std::uint32_t again = table.slot();
    CHECK(again == slot);
    CHECK(table.find(second) == 0);
}

TEST_CASE("key table: a slot repeats no key until all generations are used") {
    Table table;
    const std::uint32_t slot = table.slot();
    std::set<Key> seen;
    constexpr std::uint32_t rounds = 1u << KeyTable::generation_bits;
    for (std::uint32_t i = 0; i < rounds; ++i) {
        seen.insert(table.enable(slot, table.memory, writing));
    }
    CHECK(seen.size() == rounds);
    CHECK(!seen.contains(0));
}

TEST_CASE("key table: tables differ in the keys they give") {
    KeyTable one(Random(1));
    KeyTable other(Random(2));
    std::array<std::byte, 16> memory;
    int same = 0;
    for (int i = 0; i < 100; ++i) {
        const auto a = one.take(KeyTable::Kind::region).value();
        const auto b = other.take(KeyTable::Kind::region).value();
        REQUIRE(a == b);
        if (one.enable(a, memory, writing) == other.enable(b, memory, writing)) ++same;
    }
    CHECK(same < 5);
}

TEST_CASE("key table: is full after 2^index_bits - 1 slots") {
    Table table;
    for (std::uint32_t i = 1; i < KeyTable::slots_max; ++i) {
        if (table.slot() == 0) FAIL("slot 0 was given");
    }
    const auto more = table.take(KeyTable::Kind::region);
    REQUIRE(!more);
    CHECK(more.error() == from_errno(ENOMEM));
    table.give_back(77);
    CHECK(table.take(KeyTable::Kind::region) == 77u);
}

TEST_CASE("key table: a row is of slots side by side, which go back one by one") {
    Table table;
    const std::uint32_t before = table.slot();
    const std::uint32_t first = table.take_row(KeyTable::Kind::window, 100).value();
    const std::uint32_t behind = table.slot();
    CHECK(first == before + 1);
    CHECK(behind == first + 100);
    std::vector<Key> keys;
    for (std::uint32_t i = 0; i < 100; ++i) {
        CHECK(table.kind(first + i) == KeyTable::Kind::window);
        CHECK(table.key(first + i) == 0);
        keys.push_back(table.enable(first + i, table.memory, writing));
        CHECK(table.key(first + i) == keys.back());
    }
    for (std::uint32_t i = 0; i < 100; ++i) table.give_back(first + i);
    for (const Key key : keys) CHECK(table.find(key) == 0);
    // The next row is found among what is free, one hole of it filled.
    const std::uint32_t one = table.slot();
    CHECK(one >= first);
    CHECK(one < behind);
    table.give_back(one);
    table.give_back(before);
    CHECK(table.take_row(KeyTable::Kind::window, 101).value() == before);
    for (std::uint32_t i = 1; i < 101; ++i) {
        const Key again = table.enable(before + i, table.memory, writing);
        CHECK(again != keys[i - 1]);
        CHECK(table.find(keys[i - 1]) == 0);
    }
    CHECK(table.slot() == behind + 1);
}

TEST_CASE("key table: a row is refused when none is left, and takes nothing") {
    Table table;
    const std::uint32_t low = table.take_row(KeyTable::Kind::window, 1000).value();
    const std::uint32_t high =
        table.take_row(KeyTable::Kind::window, KeyTable::slots_max - 1001).value();
    CHECK(low == 1);
    CHECK(high == 1001);
    // 600 free in two parts.
    for (std::uint32_t i = 0; i < 300; ++i) table.give_back(low + i);
    for (std::uint32_t i = 0; i < 300; ++i) table.give_back(high + i);
    CHECK(table.take_row(KeyTable::Kind::window, 301).error() == from_errno(ENOMEM));
    CHECK(table.take_row(KeyTable::Kind::window, 300) == low);
    CHECK(table.take_row(KeyTable::Kind::window, 300) == high);
    CHECK(table.take(KeyTable::Kind::region).error() == from_errno(ENOMEM));
}

// Against a plain map of what should be valid.
TEST_CASE("key table: random life agrees with a model") {
    Table table;
    Random random(11);
    struct Entry {
        Key key = 0;
        std::size_t offset = 0, bytes = 0;
    };
    std::map<std::uint32_t, Entry> model;
    std::vector<Key> dead;
    for (int round = 0; round < 50000; ++round) {
        const auto pick = [&] {
            return std::next(model.begin(), static_cast<long>(random.below(model.size())));
        };
        const std::uint64_t what = random.below(10);
        if (model.empty() || what == 0) {
            if (model.size() >= 200) continue;
            if (random.chance(1, 8)) {
                const auto count = static_cast<std::uint32_t>(1 + random.below(12));
                const std::uint32_t first = table.take_row(KeyTable::Kind::window, count).value();
                for (std::uint32_t i = 0; i < count; ++i) {
                    REQUIRE(model.emplace(first + i, Entry{}).second);
                }
            } else {
                REQUIRE(model.emplace(table.slot(), Entry{}).second);
            }
        } else if (what == 1) {
            const auto it = pick();
            table.give_back(it->first);
            dead.push_back(it->second.key);
            model.erase(it);
        } else if (what == 2) {
            const auto it = pick();
            table.disable(it->first);
            dead.push_back(std::exchange(it->second.key, 0));
        } else if (what < 6) {
            auto& [slot, entry] = *pick();
            dead.push_back(entry.key);
            entry.offset = random.below(4096);
            entry.bytes = random.below(4096 - entry.offset + 1);
            entry.key = table.enable(
                slot, MutableBytes(table.memory).subspan(entry.offset, entry.bytes), writing);
        } else {
            const Entry& entry = pick()->second;
            const std::size_t offset = random.below(4096);
            const std::size_t bytes = random.below(4096);
            const bool inside = entry.key != 0 && offset >= entry.offset &&
                                offset + bytes <= entry.offset + entry.bytes;
            REQUIRE((table.open(entry.key, table.at(offset), bytes, writing) != nullptr) == inside);
            if (!dead.empty()) {
                const Key old = dead[random.below(dead.size())];
                const bool reborn = std::ranges::any_of(
                    model, [&](const auto& each) { return old != 0 && each.second.key == old; });
                REQUIRE((table.find(old) != 0) == reborn);
            }
        }
    }
}
