// The rules of rtrs/tag/matcher.h, a test each.
#include "rtrs/tag/matcher.h"

#include <catch2/catch.hpp>

using namespace rtrs;

namespace {

constexpr TagPattern any{.tag = 0, .mask = 0};

TagReceive receive(Tag tag, std::uint64_t context) {
    return {.pattern = {.tag = tag}, .capacity_bytes = 100, .context = context};
}

TagReceive receive(TagPattern pattern, std::uint64_t context) {
    return {.pattern = pattern, .capacity_bytes = 100, .context = context};
}

TagMessage message(std::uint64_t number, Tag tag, std::uint32_t sender = 0) {
    return {.sender = sender,
            .number = number,
            .tag = tag,
            .bytes = 10,
            .stored_bytes = 10,
            .context = 1000 + number};
}

// Who got it; 0: nobody.
std::uint64_t taker(const TagMatcher::Arrived& arrived) {
    return arrived.match ? arrived.match->receive.context : 0;
}
// Which message it got; 0: none.
std::uint64_t got(TagMatcher& matcher, const TagReceive& receive) {
    const auto posted = matcher.post(receive);
    REQUIRE(posted);
    return posted->match ? posted->match->message.number : 0;
}

}  // namespace

TEST_CASE("tag matcher: M1 a message goes to the earliest posted receive that matches it") {
    TagMatcher matcher({});
    CHECK(got(matcher, receive(7, 1)) == 0);
    CHECK(got(matcher, receive(8, 2)) == 0);
    CHECK(got(matcher, receive(any, 3)) == 0);
    CHECK(got(matcher, receive(8, 4)) == 0);
    CHECK(taker(matcher.arrive(message(1, 8))) == 2);
    CHECK(taker(matcher.arrive(message(2, 8))) == 3);
    CHECK(taker(matcher.arrive(message(3, 8))) == 4);
    CHECK(matcher.arrive(message(4, 8)).kind == TagArrival::unexpected);
    CHECK(taker(matcher.arrive(message(5, 7))) == 1);
}

TEST_CASE("tag matcher: M2 a receive takes the earliest unexpected message that matches it") {
    TagMatcher matcher({});
    for (std::uint64_t number = 1; number <= 4; ++number) {
        CHECK(matcher.arrive(message(number, number % 2)).kind == TagArrival::unexpected);
    }
    CHECK(got(matcher, receive(0, 1)) == 2);
    CHECK(got(matcher, receive(any, 2)) == 1);
    CHECK(got(matcher, receive(any, 3)) == 3);
    CHECK(got(matcher, receive(1, 4)) == 0);
    CHECK(matcher.posted() == 1);
    CHECK(got(matcher, receive(0, 5)) == 4);
    CHECK(matcher.unexpected() == 0);
}

TEST_CASE("tag matcher: M3 only the bits of the mask are compared") {
    TagMatcher matcher({});
    const TagPattern high{.tag = 0xab00, .mask = 0xff00};
    CHECK(high.matches(0xab12));
    CHECK(high.matches(0xffff'0000'0000'ab00));
    CHECK_FALSE(high.matches(0xac12));
    CHECK(any.matches(whole_tag));
    const auto impossible = matcher.post(receive(TagPattern{.tag = 0xab01, .mask = 0xff00}, 1));
    REQUIRE_FALSE(impossible);
    CHECK(impossible.error() == std::errc::invalid_argument);
    CHECK(matcher.posted() == 0);
}

TEST_CASE("tag matcher: M4 the messages of one sender are taken in the order of their numbers") {
    TagMatcher matcher({.senders = 2});
    CHECK(got(matcher, receive(any, 1)) == 0);
    CHECK(matcher.arrive(message(2, 5)).kind == TagArrival::early);
    CHECK(matcher.posted() == 1);
    CHECK(taker(matcher.arrive(message(1, 5))) == 1);
    CHECK(got(matcher, receive(any, 2)) == 0);
    CHECK(matcher.arrive(message(1, 5)).kind == TagArrival::duplicate);
    CHECK(matcher.posted() == 1);
    CHECK(taker(matcher.arrive(message(1, 5, 1))) == 2);
    CHECK(matcher.arrive(message(2, 5)).kind == TagArrival::unexpected);
    CHECK(matcher.next_number(0) == 3);
    CHECK(matcher.next_number(1) == 2);
}

TEST_CASE("tag matcher: M5 unexpected messages take bounded memory") {
    const auto limits = GENERATE(TagLimits{.senders = 2, .unexpected_messages = 2},
                                 TagLimits{.senders = 2, .unexpected_bytes = 25});
    TagMatcher matcher(limits);
    CHECK(matcher.arrive(message(1, 1)).kind == TagArrival::unexpected);
    CHECK(matcher.arrive(message(2, 2)).kind == TagArrival::unexpected);
    CHECK(matcher.arrive(message(3, 3)).kind == TagArrival::refused);
    CHECK(matcher.unexpected() == 2);
    CHECK(matcher.unexpected_bytes() == 20);
    // What follows waits for the refused one, even if somebody waits for it.
    CHECK(got(matcher, receive(4, 1)) == 0);
    CHECK(matcher.arrive(message(4, 4)).kind == TagArrival::early);
    // Another sender's goes through, if it matches.
    CHECK(taker(matcher.arrive(message(1, 4, 1))) == 1);
    CHECK(matcher.arrive(message(2, 9, 1)).kind == TagArrival::refused);
    CHECK(got(matcher, receive(1, 2)) == 1);
    CHECK(matcher.arrive(message(3, 3)).kind == TagArrival::unexpected);
    CHECK(matcher.unexpected_bytes() == 20);
}

TEST_CASE("tag matcher: M5 a flood of receives is refused, too") {
    TagMatcher matcher({.receives = 2});
    CHECK(got(matcher, receive(1, 1)) == 0);
    CHECK(got(matcher, receive(2, 2)) == 0);
    const auto third = matcher.post(receive(3, 3));
    REQUIRE_FALSE(third);
    CHECK(third.error() == std::errc::no_buffer_space);
}

TEST_CASE("tag matcher: M6 a cancelled receive matches nothing any more") {
    TagMatcher matcher({.receives = 1});
    const auto first = matcher.post(receive(1, 1));
    REQUIRE(first);
    CHECK(matcher.cancel(first->id));
    CHECK_FALSE(matcher.cancel(first->id));
    // Its place is used again, its name is not.
    const auto second = matcher.post(receive(1, 2));
    REQUIRE(second);
    CHECK(second->id != first->id);
    CHECK_FALSE(matcher.cancel(first->id));
    CHECK(taker(matcher.arrive(message(1, 1))) == 2);
    CHECK_FALSE(matcher.cancel(second->id));
    CHECK(matcher.arrive(message(2, 1)).kind == TagArrival::unexpected);
    const auto third = matcher.post(receive(1, 3));
    REQUIRE(third);
    CHECK(third->match);
    CHECK_FALSE(matcher.cancel(third->id));
}

TEST_CASE("tag matcher: M7 a message longer than its receive is matched, and the match says so") {
    TagMatcher matcher({});
    TagMessage longer = message(1, 1);
    longer.bytes = 101;
    TagMessage fits = message(2, 1);
    fits.bytes = 100;
    CHECK(got(matcher, receive(1, 1)) == 0);
    const auto arrived = matcher.arrive(longer);
    REQUIRE(arrived.match);
    CHECK(arrived.match->truncated());
    CHECK(matcher.arrive(fits).kind == TagArrival::unexpected);
    const auto posted = matcher.post(receive(1, 2));
    REQUIRE(posted);
    REQUIRE(posted->match);
    CHECK_FALSE(posted->match->truncated());
}

TEST_CASE("tag matcher: M8 who matches whom does not depend on what came first") {
    const std::vector<TagReceive> receives{receive(2, 1), receive(any, 2), receive(1, 3)};
    const std::vector<TagMessage> messages{message(1, 1), message(2, 2), message(3, 1)};
    const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected{{1, 2}, {2, 1}, {3, 3}};
    // Bit i of `order` says whether the next thing is a receive or a message.
    for (unsigned order = 0; order < 64; ++order) {
        if (__builtin_popcount(order) != 3) continue;
        TagMatcher matcher({});
        std::vector<std::pair<std::uint64_t, std::uint64_t>> matches;
        const auto note = [&](const std::optional<TagMatch>& match) {
            if (match) matches.emplace_back(match->message.number, match->receive.context);
        };
        std::size_t r = 0;
        std::size_t m = 0;
        for (unsigned i = 0; i < 6; ++i) {
            if ((order >> i & 1) != 0) {
                note(matcher.post(receives[r++])->match);
            } else {
                note(matcher.arrive(messages[m++]).match);
            }
        }
        std::ranges::sort(matches);
        CHECK(matches == expected);
    }
}
