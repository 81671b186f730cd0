#include "tests/sim/failover/options.h"

#include <fmt/format.h>

#include <charconv>

#include "rtrs/base/random.h"
#include "rtrs/fabric.h"

namespace failover {

using rtrs::Random;

const std::array<std::string_view, fault_kinds> fault_names{"cut",
                                                            "cut-one-way",
                                                            "delay",
                                                            "reset",
                                                            "half-open",
                                                            "flap",
                                                            "outage",
                                                            "isolation",
                                                            "dead-path",
                                                            "server-kill",
                                                            "server-stop",
                                                            "machine-crash",
                                                            "client-crash",
                                                            "twin",
                                                            "server-stall",
                                                            "client-stall",
                                                            "storage-slow",
                                                            "storage-late",
                                                            "storage-failing",
                                                            "device-closed",
                                                            "session-closed",
                                                            "path-change",
                                                            "volume-remap",
                                                            "device-taken",
                                                            "cache-lost",
                                                            "large-lost",
                                                            "connection-kept"};

namespace {

constexpr OptionName table[] = {
    {"--steps", &Options::steps, 0, UINT32_MAX, 0},
    {"--rounds", &Options::rounds, 0, 1000, 1},
    {"--clients", &Options::clients, 1, 3, 1},
    {"--servers", &Options::servers, 1, 2, 1},
    {"--volumes", &Options::volumes, 1, 2, 1},
    {"--paths", &Options::paths, 1, 3, 1},
    {"--requests", &Options::requests, 0, 100000, 1},
    {"--depth", &Options::depth, 1, 64, 1},
    {"--faults", &Options::faults, 0, 20, 1},
    {"--blocks", &Options::blocks, 1, 16, 1},
    {"--quiet-s", &Options::quiet_s, 0, 3600, 1},
    {"--queue-depth", &Options::queue_depth, 2, 512, std::nullopt},
    {"--io-connections", &Options::io_connections, 1, 8, 1},
    {"--always-invalidate", &Options::always_invalidate, 0, 1, 0},
    {"--client-failover", &Options::client_failover, 0, 1, std::nullopt},
    {"--server-failover", &Options::server_failover, 0, 1, std::nullopt},
    {"--identity", &Options::identity, 0, 1, std::nullopt},
    {"--epoch", &Options::epoch, 0, 1, std::nullopt},
    {"--policy", &Options::policy, 0, 3, 0},
    {"--heartbeat-ms", &Options::heartbeat_ms, 10, 10000, std::nullopt},
    {"--heartbeat-timeout-ms", &Options::heartbeat_timeout_ms, 50, 60000, std::nullopt},
    {"--half-open-ms", &Options::half_open_ms, 50, 60000, std::nullopt},
    {"--connect-timeout-ms", &Options::connect_timeout_ms, 50, 60000, std::nullopt},
    {"--reconnect-max-ms", &Options::reconnect_max_ms, 10, 60000, std::nullopt},
    {"--hold-ms", &Options::hold_ms, 0, 1000000, 0},
    {"--fail-fast-ms", &Options::fail_fast_ms, 0, 1000000, 0},
    {"--delay-us", &Options::delay_us, 2, 1000000, 60},
    {"--drain-us", &Options::drain_us, 0, 1000000, 100},
    {"--transport-timeout-ms", &Options::transport_timeout_ms, 10, 10000000, std::nullopt},
    {"--late-ms", &Options::late_ms, 1, 100000, std::nullopt},
    {"--orderly", &Options::orderly, 0, 1, 1},
    {"--wide-faults", &Options::wide_faults, 0, 20, 0},
    {"--zeroes", &Options::zeroes, 0, 1, 0},
    {"--waiters", &Options::waiters, 0, 1, 0},
    {"--messages", &Options::messages, 0, 1, 0},
    {"--flips", &Options::flips, 0, 1, 0},
    {"--operators", &Options::operators, 0, 1, 0},
    {"--send-queue", &Options::send_queue, 0, 65535, 0},
    {"--attempts-max", &Options::attempts_max, 0, 1000, 0},
    {"--deadline-ms", &Options::deadline_ms, 0, 60000, 0},
};

template <std::size_t Count>
std::uint32_t one_of(Random& random, const std::uint32_t (&values)[Count]) {
    return values[random.below(Count)];
}

std::uint32_t between(Random& random, std::uint32_t least, std::uint32_t most) {
    return least + static_cast<std::uint32_t>(random.below(most - least + 1));
}

std::uint32_t in(Random& random, std::uint32_t one, std::uint32_t of) {
    return random.chance(one, of) ? 1 : 0;
}

void draw_times(Options& options, Random& random) {
    options.heartbeat_ms = between(random, 200, 1000);
    options.heartbeat_timeout_ms = options.heartbeat_ms * between(random, 3, 5);
    options.half_open_ms = between(random, 1000, 5000);
    options.connect_timeout_ms = between(random, 1000, 4000);
    options.reconnect_max_ms = between(random, 200, 1500);
    options.hold_ms = random.chance(1, 2) ? 0 : one_of(random, {300, 1000, 3000, 12000});
    options.fail_fast_ms = random.chance(3, 4) ? 0 : between(random, 200, 5000);
    options.delay_us = one_of(random, {60, 60, 60, 60, 500, 500, 5000, 30000});
    options.drain_us = one_of(random, {100, 100, 1000, 10000, 50000});
    options.transport_timeout_ms = one_of(random, {300, 5000, 900000});
    options.late_ms = between(random, 1000, 9000);
}

// Of a chance of its own: what is drawn above stays as it is.
void widen(Options& options) {
    Random random(options.seed * 0xd1342543de82ef95u + 3);
    options.wide_faults = between(random, 0, 4);
    options.zeroes = in(random, 1, 2);
    options.waiters = in(random, 1, 2);
    options.messages = in(random, 1, 2);
    options.flips = in(random, 1, 8);
    options.operators = in(random, 1, 2);
    options.attempts_max = random.chance(1, 4) ? between(random, 2, 10) : 0;
    options.deadline_ms = random.chance(1, 2) ? between(random, 200, 3000) : 0;
    if (!random.chance(1, 5)) return;
    // More in flight than the shortest send queue that a fabric may have takes.
    options.send_queue = rtrs::Endpoint::send_queue_depth_least;
    options.queue_depth = between(random, 40, 300);
    options.depth = between(random, 16, 64);
    options.requests = between(random, 60, 400);
    options.io_connections = one_of(random, {1, 1, 2});
}

// Half of them have times that are to each other what the product's are by default. Of a chance of
// its own, too.
void take_product_times(Options& options) {
    Random random(options.seed * 0xd1342543de82ef95u + 7);
    if (random.chance(1, 2)) return;
    options.heartbeat_timeout_ms = options.heartbeat_ms * 5 / 2;
    if (options.deadline_ms == 0) options.deadline_ms = options.heartbeat_ms;
}

}  // namespace

Options Options::from_seed(std::uint64_t seed) {
    Random random(seed * 0x9e3779b97f4a7c15u + 1);
    Options options;
    options.seed = seed;
    options.clients = one_of(random, {1, 1, 1, 2, 2, 3});
    options.servers = std::min(options.clients, one_of(random, {1, 1, 2}));
    options.volumes = between(random, 1, 2);
    options.paths = one_of(random, {1, 2, 2, 2, 3});
    options.blocks = between(random, 2, 12);
    options.rounds = between(random, 4, 9);
    options.requests = between(random, 20, 80);
    options.depth = between(random, 1, 8);
    options.faults = between(random, 1, 5);
    options.quiet_s = between(random, 5, 60);
    options.queue_depth = random.chance(1, 8) ? 32 : between(random, 2, 8);
    options.io_connections = one_of(random, {1, 1, 2, 3});
    options.always_invalidate = in(random, 2, 3);
    options.client_failover = in(random, 11, 12);
    options.server_failover = in(random, 11, 12);
    options.identity = in(random, 3, 4);
    options.epoch = in(random, 9, 10);
    options.policy = between(random, 0, 3);
    options.orderly = in(random, 2, 3);
    draw_times(options, random);
    if (seed >= first_wide_seed) {
        widen(options);
        take_product_times(options);
    }
    return options;
}

std::span<const OptionName> option_names() noexcept { return table; }

// --- Overrides

void Overrides::set(const OptionName& option, std::uint32_t value) {
    std::erase_if(numbers_, [&](const Number& each) { return each.option == &option; });
    numbers_.push_back({&option, value});
}

void Overrides::forbid(Fault fault) { forbidden_ |= 1u << static_cast<unsigned>(fault); }

std::string Overrides::add(const std::string& option, const std::string& value) {
    if (option == "--no-fault") {
        const auto fault = std::ranges::find(fault_names, value);
        if (fault == fault_names.end()) {
            return fmt::format("no fault is called {}; they are: {}", value,
                               fmt::join(fault_names, " "));
        }
        forbid(static_cast<Fault>(fault - fault_names.begin()));
        return {};
    }
    const auto known =
        std::ranges::find_if(table, [&](const OptionName& each) { return each.name == option; });
    if (known == std::end(table)) return "unknown option " + option;
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || number < known->least ||
        number > known->most) {
        return fmt::format("{} takes a number from {} to {}", option, known->least, known->most);
    }
    set(*known, number);
    return {};
}

Options Overrides::apply(Options options) const {
    for (const Number& number : numbers_) options.*number.option->value = number.value;
    options.fault_mask &= ~forbidden_;
    options.servers = std::min(options.servers, options.clients);
    return options;
}

std::string Overrides::line() const {
    std::string line;
    for (const Number& number : numbers_) {
        line += fmt::format(" {} {}", number.option->name, number.value);
    }
    for (std::size_t i = 0; i < fault_kinds; ++i) {
        if ((forbidden_ >> i & 1) != 0) line += fmt::format(" --no-fault {}", fault_names[i]);
    }
    return line;
}

std::string describe(const Options& options) {
    std::string text = fmt::format("  --seed {}\n", options.seed);
    for (const OptionName& option : table) {
        text += fmt::format("  {} {}\n", option.name, options.*option.value);
    }
    for (std::size_t i = 0; i < fault_kinds; ++i) {
        if (!options.allows(static_cast<Fault>(i))) {
            text += fmt::format("  --no-fault {}\n", fault_names[i]);
        }
    }
    return text;
}

Duration failover_patience(const Options& options) {
    // Finding that a path is lost, one after the other; then what is in the network, and a margin.
    return (options.paths - 1) * (request_deadline(options) + probe_timeout(options)) +
           microseconds(40 * options.delay_us + 2 * options.drain_us) + milliseconds(100);
}

}  // namespace failover
