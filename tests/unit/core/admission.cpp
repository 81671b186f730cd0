#include "rtrs/core/admission.h"

#include <catch2/catch.hpp>

using namespace rtrs;

namespace {

using Verdict = Admission::Verdict;

Attempt write_of(Sequence sequence) { return {.sequence = sequence}; }
Attempt read_of(Sequence sequence) { return {.sequence = sequence, .has_response_data = true}; }

}  // namespace

TEST_CASE("admission: new sequences run, each permit by itself") {
    Admission admission(4);
    Attempt first = write_of(1);
    Attempt other = write_of(2);
    CHECK(admission.arrive(0, first).verdict == Verdict::run);
    CHECK(admission.arrive(3, other).verdict == Verdict::run);
    admission.ended(0, first, 0);
    CHECK(!admission.next_released(0));
    Attempt second = write_of(7);
    CHECK(admission.arrive(0, second).verdict == Verdict::run);
    CHECK(admission.running(0) == &second);
    CHECK(admission.running(3) == &other);
}

TEST_CASE("admission: an older attempt never runs, whatever it is") {
    Admission admission(1);
    Attempt newer = write_of(5);
    CHECK(admission.arrive(0, newer).verdict == Verdict::run);
    Attempt late_write = write_of(4);
    Attempt late_read = read_of(3);
    CHECK(admission.arrive(0, late_write).verdict == Verdict::stale);
    admission.ended(0, newer, 0);
    CHECK(admission.arrive(0, late_read).verdict == Verdict::stale);
    CHECK(admission.statistics().stale == 2);
}

TEST_CASE("admission: a retry waits for the first attempt and is answered with its result") {
    Admission admission(1);
    Attempt first = write_of(5);
    Attempt retry = write_of(5);
    admission.arrive(0, first);
    CHECK(admission.arrive(0, retry).verdict == Verdict::wait);
    CHECK(!admission.next_released(0));
    admission.ended(0, first, 28);
    const auto released = admission.next_released(0);
    REQUIRE(released);
    CHECK(released->attempt == &retry);
    CHECK(released->decision.verdict == Verdict::answer);
    CHECK(released->decision.result == 28);
    CHECK(!admission.next_released(0));

    Attempt once_more = write_of(5);
    const auto decision = admission.arrive(0, once_more);
    CHECK(decision.verdict == Verdict::answer);
    CHECK(decision.result == 28);
}

TEST_CASE("admission: a read that is done runs again, one at a time") {
    Admission admission(1);
    Attempt first = read_of(5);
    Attempt second = read_of(5);
    Attempt third = read_of(5);
    admission.arrive(0, first);
    CHECK(admission.arrive(0, second).verdict == Verdict::wait);
    CHECK(admission.arrive(0, third).verdict == Verdict::wait);
    admission.ended(0, first, 0);
    const auto released = admission.next_released(0);
    REQUIRE(released);
    CHECK(released->attempt == &second);
    CHECK(released->decision.verdict == Verdict::run);
    CHECK(!admission.next_released(0));
    admission.ended(0, second, 0);
    CHECK(admission.next_released(0)->attempt == &third);
}

TEST_CASE("admission: a newer request waits for an older one that still runs") {
    Admission admission(1);
    Attempt older = write_of(5);
    Attempt retry = write_of(5);
    Attempt newer = write_of(6);
    admission.arrive(0, older);
    CHECK(admission.arrive(0, retry).verdict == Verdict::wait);
    CHECK(admission.arrive(0, newer).verdict == Verdict::wait);
    Attempt late = write_of(5);
    CHECK(admission.arrive(0, late).verdict == Verdict::stale);
    admission.ended(0, older, 0);
    auto released = admission.next_released(0);
    REQUIRE(released);
    CHECK(released->attempt == &retry);
    CHECK(released->decision.verdict == Verdict::stale);
    released = admission.next_released(0);
    REQUIRE(released);
    CHECK(released->attempt == &newer);
    CHECK(released->decision.verdict == Verdict::run);
}

TEST_CASE("admission: what waits on a path that dies is forgotten, and may come again") {
    Admission admission(1);
    Attempt older = write_of(5);
    Attempt newer = write_of(6);
    admission.arrive(0, older);
    admission.arrive(0, newer);
    admission.drop(0, newer);
    admission.ended(0, older, 0);
    CHECK(!admission.next_released(0));
    Attempt again = write_of(6);
    CHECK(admission.arrive(0, again).verdict == Verdict::run);
}

TEST_CASE("admission: without sequences a permit runs once at a time") {
    Admission admission(1);
    Attempt first = write_of(0);
    Attempt second = write_of(0);
    CHECK(admission.arrive(0, first).verdict == Verdict::run);
    CHECK(admission.arrive(0, second).verdict == Verdict::wait);
    admission.ended(0, first, 5);
    const auto released = admission.next_released(0);
    REQUIRE(released);
    CHECK(released->decision.verdict == Verdict::run);
    admission.ended(0, second, 0);
    Attempt third = write_of(0);
    CHECK(admission.arrive(0, third).verdict == Verdict::run);
}
