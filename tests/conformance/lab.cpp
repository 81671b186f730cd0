#include "tests/conformance/lab.h"

#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

namespace conformance {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t staging_bytes = 8u << 20;
constexpr std::uint64_t big_context = ~0ull;
// What a receive holds before anything arrives; no RTRS message begins so.
constexpr std::uint8_t untouched = 0xee;
constexpr Duration turn = std::chrono::milliseconds(10);

std::size_t whole_pages(std::size_t bytes) {
    return std::max(page, (bytes + page - 1) / page * page);
}

Octets copy_of(rtrs::Bytes data) {
    Octets octets(data.size());
    for (std::size_t i = 0; i < data.size(); ++i)
        octets[i] = std::to_integer<std::uint8_t>(data[i]);
    return octets;
}

std::unique_ptr<rtrs::MemoryRegion> registered(rtrs::ProtectionDomain& domain, const Memory& memory,
                                               rtrs::Access access) {
    auto region = domain.register_memory(memory.all(), access);
    if (!region) throw Stop{"cannot register memory: " + region.error().message()};
    return std::move(*region);
}

}  // namespace

Memory::Memory(std::size_t bytes) : bytes_(whole_pages(bytes)) {
    void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw Stop{"out of memory"};
    data_ = static_cast<std::byte*>(data);
}
Memory::~Memory() { munmap(data_, bytes_); }

Octets Memory::octets(std::size_t offset, std::size_t bytes) const {
    return copy_of({data_ + offset, bytes});
}
void Memory::put(std::size_t offset, const Octets& octets) const {
    for (std::size_t i = 0; i < octets.size(); ++i) data_[offset + i] = std::byte{octets[i]};
}
void Memory::fill(std::size_t offset, std::size_t bytes, std::uint8_t value) const {
    std::fill_n(data_ + offset, bytes, std::byte{value});
}

// --- Lab

Lab::Lab(const LabOptions& its_options) : options(its_options), random_(std::random_device{}()) {
    auto made = rtrs::Reactor::create();
    if (!made) throw Stop{"no reactor: " + made.error().message()};
    reactor = std::move(*made);
    if (options.fabric == "tcp") {
        fabric = rtrs::make_tcp_fabric(*reactor, {});
        return;
    }
#ifdef RTRS_VERBS
    auto verbs = rtrs::make_verbs_fabric(*reactor, {.local_host = options.local_host});
    if (!verbs) throw Stop{"no RDMA device: " + verbs.error().message()};
    fabric = std::move(*verbs);
#else
    throw Stop{"built without RDMA"};
#endif
}

Lab::~Lab() = default;

bool Lab::wait(Duration at_most, const std::function<bool()>& done) {
    const Instant end = reactor->now() + at_most;
    while (!done()) {
        if (reactor->now() >= end) return false;
        reactor->run_once(turn);
    }
    return true;
}

void Lab::need(std::string_view what, const std::function<bool()>& done) {
    if (!wait(done)) throw Stop{"in vain waited for: " + std::string(what)};
}

void Lab::pause(Duration time) {
    wait(time, [] { return false; });
}

Octets Lab::uuid() {
    Octets octets(16);
    std::mt19937_64 source(random_++);
    for (auto& octet : octets) octet = static_cast<std::uint8_t>(source());
    octets[6] = static_cast<std::uint8_t>((octets[6] & 0x0f) | 0x40);
    octets[8] = static_cast<std::uint8_t>((octets[8] & 0x3f) | 0x80);
    return octets;
}

std::uint64_t Lab::receiver_not_ready() {
    namespace fs = std::filesystem;
    std::uint64_t sum = 0;
    std::error_code none;
    for (const auto& device : fs::directory_iterator("/sys/class/infiniband", none)) {
        for (const auto& port : fs::directory_iterator(device.path() / "ports", none)) {
            for (const char* name : {"rcvd_rnr_err", "send_rnr_err"}) {
                std::ifstream counter(port.path() / "hw_counters" / name);
                std::uint64_t value = 0;
                if (counter >> value) sum += value;
            }
        }
    }
    return sum;
}

Duration mean_interval(Lab& lab, const std::vector<Instant>& heartbeats, Duration interval) {
    const auto count = 2 + std::chrono::seconds(4) / interval;
    const auto intervals = static_cast<std::size_t>(count);
    if (!lab.wait(count * interval + lab.options.patience,
                  [&] { return heartbeats.size() > intervals; })) {
        throw Stop{std::to_string(heartbeats.size()) + " heartbeats, more were waited for"};
    }
    return (heartbeats[intervals] - heartbeats[0]) / count;
}

// --- Room

Room::Room(Lab& lab) : staging_(staging_bytes) {
    auto domain = lab.fabric->create_domain();
    if (!domain) throw Stop{"no protection domain: " + domain.error().message()};
    domain_ = std::move(*domain);
    region_ = registered(*domain_, staging_, rtrs::Access::local);
}

rtrs::Segment Room::stage(const Octets& octets) {
    if (next_ + octets.size() > staging_.bytes()) next_ = 0;
    const std::size_t at = next_;
    next_ += (octets.size() + 63) / 64 * 64;
    staging_.put(at, octets);
    return staging_.segment(at, octets.size());
}

// --- Link

Link::Link(Lab& its_lab, Room& its_room, std::uint16_t its_cid, Receives receives)
    : lab(its_lab),
      room(its_room),
      cid(its_cid),
      receives_(receives),
      memory_(std::size_t{receives.count} * std::max(8u, receives.bytes)),
      region_(registered(room.domain(), memory_, rtrs::Access::local)) {}

Link::~Link() {
    taken = nullptr;
    revoked = nullptr;
    if (!endpoint || drained) return;
    endpoint->disconnect();
    lab.wait([this] { return drained; });
}

void Link::adopt(std::unique_ptr<rtrs::Endpoint> its_endpoint) {
    endpoint = std::move(its_endpoint);
}

void Link::post_receives() {
    for (std::uint32_t i = 0; i < receives_.count; ++i) receive(i);
}

void Link::post_big(std::uint32_t bytes) {
    big_ = std::make_unique<Memory>(bytes);
    big_region_ = registered(room.domain(), *big_, rtrs::Access::local);
    static_cast<void>(endpoint->post_receive(big_context, big_->segment(0, bytes)));
}

void Link::receive(std::uint32_t slot) {
    if (disconnected || drained) return;
    const std::size_t at = std::size_t{slot} * std::max(8u, receives_.bytes);
    memory_.fill(at, receives_.bytes, untouched);
    const rtrs::Segment buffer =
        receives_.bytes == 0 ? rtrs::Segment{} : memory_.segment(at, receives_.bytes);
    static_cast<void>(endpoint->post_receive(slot, buffer));
}

bool Link::post(const rtrs::WorkRequest& work) { return endpoint && !endpoint->post({&work, 1}); }
bool Link::send(const Octets& octets) {
    const rtrs::Segment from = room.stage(octets);
    return post({.opcode = rtrs::WorkOpcode::send,
                 .signal = rtrs::Signal::completion,
                 .local = {&from, 1}});
}
bool Link::send_immediate(const Octets& octets, std::uint32_t immediate) {
    const rtrs::Segment from = room.stage(octets);
    return post({.opcode = rtrs::WorkOpcode::send_immediate,
                 .signal = rtrs::Signal::completion,
                 .local = {&from, 1},
                 .immediate = immediate});
}
bool Link::send_invalidate(rtrs::Key key) {
    return post({.opcode = rtrs::WorkOpcode::send_invalidate,
                 .signal = rtrs::Signal::completion,
                 .invalidate = key});
}
bool Link::write(const std::vector<rtrs::Segment>& from, rtrs::RemoteBuffer to) {
    return post({.opcode = rtrs::WorkOpcode::write,
                 .signal = rtrs::Signal::completion,
                 .local = from,
                 .remote = to});
}
bool Link::write_immediate(const std::vector<rtrs::Segment>& from, rtrs::RemoteBuffer to,
                           std::uint32_t immediate) {
    return post({.opcode = rtrs::WorkOpcode::write_immediate,
                 .signal = rtrs::Signal::completion,
                 .local = from,
                 .remote = to,
                 .immediate = immediate});
}

void Link::disconnect() {
    if (endpoint) endpoint->disconnect();
}

void Link::on_established(rtrs::Bytes data) {
    established = true;
    private_data = copy_of(data);
}
void Link::on_rejected(rtrs::Bytes data) {
    rejected = true;
    private_data = copy_of(data);
}
void Link::on_disconnected(std::error_code why) {
    disconnected = true;
    reason = why;
}
void Link::on_drained() {
    drained = true;
    endpoint.reset();
}

void Link::on_completion(const rtrs::Completion& completion) {
    using rtrs::CompletionOpcode;
    if (completion.opcode == CompletionOpcode::revoke) {
        if (revoked) revoked(completion.context);
        return;
    }
    if (completion.status == rtrs::CompletionStatus::remote_access) denied = true;
    if (completion.status != rtrs::CompletionStatus::success) return;
    if (completion.opcode == CompletionOpcode::send) return;
    Arrival arrival{.opcode = completion.opcode,
                    .immediate = completion.immediate,
                    .bytes = completion.bytes,
                    .invalidated = completion.invalidated,
                    .when = lab.now()};
    const bool big = completion.context == big_context;
    const std::size_t at =
        big ? 0 : static_cast<std::size_t>(completion.context) * std::max(8u, receives_.bytes);
    const Memory& memory = big ? *big_ : memory_;
    arrival.body = memory.octets(at, big ? completion.bytes : receives_.bytes);
    arrival.body_written =
        std::ranges::any_of(arrival.body, [](std::uint8_t octet) { return octet != untouched; });
    if (!big) receive(static_cast<std::uint32_t>(completion.context));
    if (taken && taken(arrival)) return;
    arrivals.push_back(std::move(arrival));
}

}  // namespace conformance
