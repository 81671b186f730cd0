// A listener over the fake volume, for tests with real NBD tools. Prints "ready", ends at SIGTERM.
//
//   nbd_test_server ADDRESS [size=BYTES] [depth=N] [io=BYTES] [block=BYTES] [shuffled=1]
//                   [null=1]    (no data is moved)
//                   [plain=1]   (a volume without discard, write-zeroes, FUA and extents)
#include <signal.h>
#include <sys/signalfd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "rnbd-client/nbd/listener.h"
#include "tests/unit/rnbd-client/fake_volume.h"

namespace {

struct Printer final : rtrs::Tracer {
    void trace(rtrs::TraceLevel, std::string_view subsystem, std::string_view subject,
               std::string_view text) override {
        std::fprintf(stderr, "%.*s %.*s: %.*s\n", static_cast<int>(subsystem.size()),
                     subsystem.data(), static_cast<int>(subject.size()), subject.data(),
                     static_cast<int>(text.size()), text.data());
    }
};

struct Stopper final : rnbd::NbdListener::Handler {
    rtrs::Reactor* reactor = nullptr;
    void on_address_free(rnbd::NbdListener&) override {}
    void on_listener_closed(rnbd::NbdListener&) override { reactor->stop(); }
    void on_connection_gone(rnbd::NbdListener&) override {}
};

void option(std::string_view text, rnbd::fake::Settings& settings) {
    const std::size_t equals = text.find('=');
    const std::string_view key = text.substr(0, equals);
    const auto value = std::strtoull(std::string(text.substr(equals + 1)).c_str(), nullptr, 0);
    if (key == "size") settings.geometry.size_bytes = value;
    if (key == "depth") settings.queue_depth = static_cast<std::uint32_t>(value);
    if (key == "io") settings.max_io_bytes = static_cast<std::uint32_t>(value);
    if (key == "block") settings.geometry.logical_block_bytes = static_cast<std::uint32_t>(value);
    if (key == "null") settings.null = value != 0;
    if (key == "shuffled") settings.shuffled = value != 0;
    if (key == "plain") {
        settings.geometry.discard_bytes_max = 0;
        settings.geometry.write_zeroes_bytes_max = 0;
        settings.geometry.extents = false;
        settings.geometry.force_unit_access = false;
        settings.geometry.fast_zero = false;
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    auto reactor = rtrs::Reactor::create();
    if (!reactor) {
        std::fprintf(stderr, "no reactor: %s\n", reactor.error().message().c_str());
        return 77;
    }
    auto& settings = rnbd::fake::settings();
    settings.reactor = reactor->get();
    for (int i = 2; i < argc; ++i) option(argv[i], settings);
    const auto address = rnbd::NbdAddress::parse(argv[1]);
    if (!address) {
        std::fprintf(stderr, "%s\n", address.error().c_str());
        return 2;
    }

    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    const int signal_fd = ::signalfd(-1, &signals, SFD_CLOEXEC);

    rnbd::fake::World world;
    rnbd::PermitShares shares;
    rnbd::Device device(world.volume(), shares, {"disk", "a disk in memory"});
    rnbd::NbdExports exports({&device});
    Printer printer;
    Stopper stopper;
    stopper.reactor = reactor->get();
    rnbd::NbdListener listener({**reactor, printer}, exports, {.address = *address}, stopper);

    rtrs::MemberOperation<&rnbd::NbdListener::close> signal(listener);
    (*reactor)->poll_readable(signal, signal_fd);

    if (const auto opened = listener.open(); !opened) {
        std::fprintf(stderr, "%s\n", opened.error().text.c_str());
        return 1;
    }
    std::puts("ready");
    std::fflush(stdout);
    (*reactor)->run();
    std::uint64_t requests = 0;
    for (const auto& kind : device.counters().by_command) requests += kind.requests;
    std::fprintf(stderr, "%llu requests\n", static_cast<unsigned long long>(requests));
    return 0;
}
