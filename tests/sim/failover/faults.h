// What goes wrong and when: draws faults and turns each into timed actions on the machines.
//
// Every fault has its own stream of chance, so that leaving one out changes nothing in the others'
// drawing.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tests/sim/failover/client_machine.h"
#include "tests/sim/failover/server_app.h"

namespace failover {

// Who there is.
struct Machines {
    std::vector<std::unique_ptr<ServerMachine>> servers;
    std::vector<std::unique_ptr<ClientMachine>> clients;
    std::uint32_t server_of(std::uint32_t client) const {
        return client % static_cast<std::uint32_t>(servers.size());
    }
};

class Faults {
  public:
    Faults(const Surroundings& surroundings, Machines& machines);

    // Draws the next fault, which begins within span from now.
    void plan(Duration span);
    // One that only wide runs have.
    void plan_wide(Duration span);
    // When the next action is due; Instant::max(): none.
    Instant next() const;
    // Does what is due now.
    void act();
    // A host or a link that was stopped goes on after so long at the latest.
    static constexpr Duration longest_stall = std::chrono::seconds(17);
    // Everything works again: ends what goes on, but for stalls. What is planned is dropped.
    void end_all();

    // Whether client's path over this network has had nothing to suffer since then.
    bool undisturbed(std::uint32_t client, std::uint32_t network, Instant since) const;
    // Whether no network of the client has lost what is long since then, or has kept what one
    // connection brings. Who waits for that, all else being well, has only the patience of who
    // sends it, or has to ask first.
    bool carries_all(std::uint32_t client, Instant since) const {
        return large_lost_until_[client] <= since && kept_until_[client] <= since;
    }

    const std::array<std::uint64_t, fault_kinds>& counts() const noexcept { return counts_; }

  private:
    enum class Step : std::uint8_t {
        begin,  // the fault itself
        heal,
        kept_passes,
        cut_again,
        reset_again,
        cut_exchange,
        path_again,
        server_start,
        server_poll,
        client_start,
        old_end,
        old_poll,
        mood_end,
        paths_back,
    };
    struct Action {
        Instant at{};
        std::uint64_t order = 0;
        Step step = Step::begin;
        Fault fault = Fault::cut;
        std::uint32_t client = 0;
        std::uint32_t server = 0;
        std::uint32_t network = 0;
        std::uint32_t variant = 0;
        std::uint32_t host = 0;   // of the client: the address pair that was cut
        std::uint32_t polls = 0;  // that are left
        Duration duration{};
    };
    static bool later(const Action& a, const Action& b) noexcept {
        return a.at != b.at ? a.at > b.at : a.order > b.order;
    }

    void push(Action action, Step step, Duration after);
    void begin(const Action& action);
    void begin_network(const Action& action);
    void begin_process(const Action& action);
    void begin_storage(const Action& action);
    void twin(const Action& action);
    void flap(const Action& action);
    void isolate(const Action& action);
    void poll_server(const Action& action);
    void end_old_clients(std::uint32_t server);
    void poll_old(const Action& action);
    void cut(const Action& action, std::uint32_t client, std::uint32_t network);
    void reset(const Action& action);
    void reset_then_cut(const Action& action);
    void cut_exchange(Action action);
    void delay_and_give_up(const Action& action);
    void keep(const Action& action);
    void disturb(std::uint32_t client, std::uint32_t network, Duration duration);
    void disturb_client(std::uint32_t client, Duration duration);
    void disturb_server(std::uint32_t server, Duration duration);
    std::string client_address(const Action& action, std::uint32_t network) const;
    std::string server_address(const Action& action, std::uint32_t network) const;
    Fault draw_kind(rtrs::Random& random) const;

    const Surroundings& surroundings_;
    Machines& machines_;
    std::vector<Action> actions_;  // a heap
    std::uint64_t order_ = 0;
    std::uint32_t planned_ = 0;
    std::uint32_t planned_wide_ = 0;
    std::array<std::array<Instant, 3>, 3> disturbed_until_{};  // by client and network
    std::array<Instant, 3> large_lost_until_{};                // by client
    std::array<Instant, 3> kept_until_{};                      // likewise
    std::array<std::uint64_t, fault_kinds> counts_{};
};

// How long after its last trouble a client may need until a request is answered.
Duration patience(const Options& options);

}  // namespace failover
