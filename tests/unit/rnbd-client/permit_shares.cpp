// Who may have how many permits of a session, and in which order.
#include "rnbd-client/permit_shares.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

using rnbd::PermitShares;

namespace {

constexpr std::uint32_t all = 100;

struct Client {
    struct Claim : PermitShares::Claim {
        explicit Claim(Client& its_owner)
            : PermitShares::Claim(its_owner.share,
                                  [](PermitShares::Claim& claim) {
                                      static_cast<Claim&>(claim).owner.granted = true;
                                  }),
              owner(its_owner) {}
        Client& owner;
    };

    Client(PermitShares& its_shares, PermitShares::Device& its_device)
        : shares(its_shares), device(its_device), claim(*this) {}
    ~Client() {
        shares.forget(device, claim);
        if (share.held > 0) give_back(share.held);
    }
    bool take(std::uint32_t permits, std::uint32_t of = all) {
        granted = false;
        claim.permits = permits;
        claim.of = of;
        return shares.take_or_wait(device, claim);
    }
    void take_while_there_is_room() {
        while (take(1)) continue;
        shares.forget(device, claim);
    }
    void give_back(std::uint32_t permits) { shares.give_back(device, share, permits); }
    void is_served() {
        share.was_served = false;
        shares.served(device, share);
    }

    PermitShares& shares;
    PermitShares::Device& device;
    PermitShares::Client share{.was_served = true};
    Claim claim;
    bool granted = false;
};

struct Device {
    explicit Device(PermitShares& its_shares) : shares(its_shares) { shares.join(share); }
    ~Device() { shares.leave(share); }
    PermitShares& shares;
    PermitShares::Device share;
};

}  // namespace

TEST_CASE("permit shares: each of several devices leaves a part to another one") {
    PermitShares shares;
    Device one(shares), two(shares);
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 30; ++i) {
        clients.push_back(std::make_unique<Client>(shares, one.share));
        clients.back()->take_while_there_is_room();
    }
    CHECK(one.share.held == all / 2);
    Client other(shares, two.share);
    CHECK(other.take(1));
}

TEST_CASE("permit shares: each client of a device leaves a part to another one") {
    PermitShares shares;
    Device device(shares);
    Client one(shares, device.share), two(shares, device.share), three(shares, device.share);
    one.take_while_there_is_room();
    CHECK(one.share.held == 66);  // twice as much as is left
    two.take_while_there_is_room();
    CHECK(two.share.held == 22);
    CHECK(three.take(12));
    CHECK_FALSE(device.share.full);
}

TEST_CASE("permit shares: few permits are not divided among clients") {
    PermitShares shares;
    Device device(shares);
    Client one(shares, device.share);
    for (int i = 0; i < 8; ++i) CHECK(one.take(1, 8));
    CHECK_FALSE(one.take(1, 8));
    CHECK(device.share.full);
}

TEST_CASE("permit shares: who has too much itself delays nobody else") {
    PermitShares shares;
    Device device(shares);
    Client one(shares, device.share), two(shares, device.share);
    one.take_while_there_is_room();
    CHECK_FALSE(one.take(1));
    CHECK_FALSE(device.share.full);
    CHECK(two.take(1));
    two.give_back(1);
    CHECK_FALSE(one.granted);
    one.give_back(1);
    CHECK(one.granted);
}

TEST_CASE(
    "permit shares: nobody gets ahead of a large claim, and it is granted when there is room") {
    PermitShares shares;
    Device device(shares), other(shares);
    Client small(shares, device.share), large(shares, device.share), late(shares, device.share);
    CHECK(small.take(20));
    CHECK_FALSE(large.take(40));
    CHECK(device.share.full);
    for (int i = 0; i < 9; ++i) {
        // As a client does that has many requests: one more for each that has ended.
        small.give_back(1);
        CHECK_FALSE(small.take(1));
        CHECK_FALSE(small.granted);
        shares.forget(device.share, small.claim);
    }
    CHECK_FALSE(late.take(1));
    CHECK_FALSE(large.granted);
    small.give_back(1);
    CHECK(large.granted);
    CHECK_FALSE(late.granted);
    large.give_back(40);
    CHECK(late.granted);
    CHECK_FALSE(device.share.full);
}

TEST_CASE("permit shares: newcomers alone are clients as others") {
    PermitShares shares;
    Device device(shares);
    Client one(shares, device.share), two(shares, device.share), late(shares, device.share);
    for (Client* const client : {&one, &two, &late}) client->share.was_served = false;
    CHECK(one.take(40));
    CHECK(two.take(30));
    // Nor any longer, when nobody is left who was served.
    {
        Client served(shares, device.share);
        served.is_served();
        CHECK_FALSE(late.take(10));
        shares.left(device.share, served.share);
    }
    CHECK(late.granted);
}

TEST_CASE("permit shares: however many newcomers there are, who was served finds room") {
    PermitShares shares;
    Device device(shares);
    Client served(shares, device.share);
    served.is_served();
    std::vector<std::unique_ptr<Client>> newcomers;
    for (int i = 0; i < 60; ++i) {
        newcomers.push_back(std::make_unique<Client>(shares, device.share));
        newcomers.back()->share.was_served = false;
        CHECK(newcomers.back()->take(2) == (i < 25));  // half of all
    }
    CHECK_FALSE(device.share.full);
    CHECK(served.take(10));
    CHECK_FALSE(PermitShares::others_wait_for(device.share, served.share));
    CHECK(PermitShares::others_wait_for(device.share, newcomers[0]->share));
    // In their order, when one of them has taken its answer.
    shares.served(device.share, newcomers[7]->share);
    CHECK(newcomers[25]->granted);
    CHECK_FALSE(newcomers[26]->granted);
    newcomers[3]->give_back(2);
    CHECK(newcomers[26]->granted);
    CHECK_FALSE(newcomers[27]->granted);
}

TEST_CASE("permit shares: a newcomer leaves a part of what newcomers have to another one") {
    PermitShares shares;
    Device device(shares);
    Client one(shares, device.share), two(shares, device.share), served(shares, device.share);
    served.is_served();
    for (Client* const client : {&one, &two}) client->share.was_served = false;
    one.take_while_there_is_room();
    CHECK(one.share.held == 33);  // of 50
    CHECK(two.take(17));
}

TEST_CASE("permit shares: a newcomer's request may need more than half, and is not overtaken") {
    PermitShares shares;
    Device device(shares);
    Client small(shares, device.share), large(shares, device.share), late(shares, device.share);
    Client served(shares, device.share);
    served.is_served();
    for (Client* const client : {&small, &large, &late}) client->share.was_served = false;
    CHECK(small.take(1));
    CHECK_FALSE(large.take(80));
    CHECK_FALSE(late.take(1));
    small.give_back(1);
    CHECK(large.granted);
    CHECK_FALSE(late.granted);
    CHECK(served.take(20));
    large.give_back(80);
    CHECK(late.granted);
}

TEST_CASE("permit shares: of newcomers that need more than half one is before who was served") {
    PermitShares shares;
    Device device(shares);
    Client served(shares, device.share), other(shares, device.share);
    served.is_served();
    other.is_served();
    std::vector<std::unique_ptr<Client>> large;
    for (int i = 0; i < 4; ++i) {
        large.push_back(std::make_unique<Client>(shares, device.share));
        large.back()->share.was_served = false;
        CHECK(large.back()->take(90) == (i == 0));
    }
    CHECK_FALSE(served.take(20));
    CHECK_FALSE(other.take(5));
    large[0]->give_back(90);
    CHECK(served.granted);
    CHECK(other.granted);
    CHECK_FALSE(large[1]->granted);
    CHECK_FALSE(served.take(20));  // the second one is not overtaken
    served.give_back(20);
    CHECK(large[1]->granted);
    other.give_back(5);
    CHECK_FALSE(large[2]->granted);
    CHECK_FALSE(served.granted);
    large[1]->give_back(90);
    CHECK(served.granted);
    CHECK_FALSE(large[2]->granted);
    served.give_back(20);
    CHECK(large[2]->granted);
    large[2]->give_back(90);
    CHECK(large[3]->granted);
}

TEST_CASE("permit shares: who was served and only has too much itself delays no newcomer") {
    PermitShares shares;
    Device device(shares);
    Client served(shares, device.share);
    served.is_served();
    CHECK(served.take(40));
    CHECK_FALSE(served.take(30));
    {
        Client large(shares, device.share);
        large.share.was_served = false;
        CHECK(large.take(55));
    }
    Client next(shares, device.share);
    next.share.was_served = false;
    CHECK(next.take(55));
}

TEST_CASE("permit shares: a claim that is dropped makes way for those behind it") {
    PermitShares shares;
    Device device(shares), other(shares);
    Client small(shares, device.share), late(shares, device.share);
    CHECK(small.take(20));
    {
        Client large(shares, device.share);
        CHECK_FALSE(large.take(40));
        CHECK_FALSE(late.take(1));
    }
    CHECK(late.granted);
}
