#include "tests/unit/rnbd-client/fake_volume.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "rtrs/base/assert.h"
#include "rtrs/base/lazy_memory.h"

namespace rtrs {

// ---- permits ----

struct ClientSession::Inside {
    ClientSessionOptions options;
    LazyMemory payload;
    std::uint32_t depth = 0;
    std::uint32_t bytes = 0;
    std::vector<std::uint32_t> free;
    IntrusiveList<PermitWaiter> waiters;
};

namespace {
std::vector<std::uint32_t>* permits_at_home = nullptr;
}

Permit::Permit(Permit&& other) noexcept
    : session_(std::exchange(other.session_, nullptr)), id_(other.id_) {}

Permit& Permit::operator=(Permit&& other) noexcept {
    Permit old(std::move(*this));
    session_ = std::exchange(other.session_, nullptr);
    id_ = other.id_;
    return *this;
}

Permit::~Permit() {
    if (session_ == nullptr) return;
    ClientSession::Inside& inside = *session_->inside_;
    ClientSession& session = *session_;
    inside.free.push_back(static_cast<std::uint32_t>(id_));
    while (!inside.waiters.empty() && inside.waiters.front().count <= inside.free.size()) {
        PermitWaiter& waiter = inside.waiters.pop_front();
        for (Permit& permit : waiter.permits) {
            permit.session_ = &session;
            permit.id_ = static_cast<PermitId>(inside.free.back());
            inside.free.pop_back();
        }
        waiter.granted(waiter);
    }
}

MutableBytes Permit::payload() const noexcept {
    ClientSession::Inside& inside = *session_->inside_;
    return inside.payload.bytes().subspan(
        std::size_t{inside.bytes} * static_cast<std::uint32_t>(id_), inside.bytes);
}

ClientSession::ClientSession(SessionEnvironment, ClientSessionOptions options,
                             ClientSessionHandler&)
    : inside_(std::make_unique<Inside>()) {
    const auto& settings = rnbd::fake::settings();
    inside_->options = std::move(options);
    inside_->depth = settings.queue_depth;
    inside_->bytes = settings.max_io_bytes;
    inside_->payload = LazyMemory(std::size_t{inside_->depth} * inside_->bytes);
    for (std::uint32_t i = inside_->depth - 1; i > 0; --i) inside_->free.push_back(i);
    permits_at_home = &inside_->free;
}
ClientSession::~ClientSession() {
    // All permits are home.
    RTRS_ASSERT(inside_->free.size() == inside_->depth - 1);
}
std::uint32_t ClientSession::queue_depth() const noexcept { return inside_->depth; }
std::uint32_t ClientSession::max_io_bytes() const noexcept { return inside_->bytes; }
std::uint32_t ClientSession::permits_max() const noexcept { return inside_->depth - 1; }
std::error_code ClientSession::refuses_new() const noexcept {
    return rnbd::fake::settings().refuses_new;
}
std::optional<Permit> ClientSession::try_take() {
    if (!inside_->waiters.empty() || inside_->free.empty()) return std::nullopt;
    Permit permit(*this, static_cast<PermitId>(inside_->free.back()));
    inside_->free.pop_back();
    return permit;
}
bool ClientSession::take_or_wait(PermitWaiter& waiter) {
    RTRS_ASSERT(waiter.count >= 1 && waiter.count <= permits_max());
    RTRS_ASSERT(waiter.permits.size() == waiter.count);
    if (!inside_->waiters.empty() || inside_->free.size() < waiter.count) {
        inside_->waiters.push_back(waiter);
        return false;
    }
    for (Permit& permit : waiter.permits) {
        RTRS_ASSERT(!permit);
        permit = Permit(*this, static_cast<PermitId>(inside_->free.back()));
        inside_->free.pop_back();
    }
    return true;
}
// Of a link that is up: what a volume says of itself counts.
ClientSessionStatus ClientSession::status() const { return {.link_up = true}; }
void ClientSession::stop_waiting(PermitWaiter& waiter) noexcept {
    IntrusiveList<PermitWaiter>::remove(waiter);
}

}  // namespace rtrs

namespace rnbd {
namespace fake {
namespace {

struct Pending {
    rtrs::Permit permit;
    VolumeIo io;
};

struct Worker : rtrs::TurnTask {
    Worker() : TurnTask([](TurnTask&) { complete(); }) {}
};

std::vector<Pending> pending, running;
std::vector<Operation> submitted;
rtrs::LazyMemory backing;
std::mt19937 order(7);

Worker& worker() {
    static Worker task;
    return task;
}

std::error_code perform(const VolumeIo& io, rtrs::MutableBytes payload) {
    if (settings().fails) {
        if (const auto error = settings().fails(io)) return error;
    }
    if (io.operation == VolumeOperation::flush || settings().null) return {};
    const VolumeGeometry& geometry = settings().geometry;
    RTRS_ASSERT(io.bytes > 0 && io.offset + io.bytes <= geometry.size_bytes);
    RTRS_ASSERT((io.offset | io.bytes) % geometry.logical_block_bytes == 0);
    switch (io.operation) {
        case VolumeOperation::read:
            RTRS_ASSERT(io.bytes <= payload.size());
            std::memcpy(payload.data(), backing.data() + io.offset, io.bytes);
            break;
        case VolumeOperation::write:
            RTRS_ASSERT(io.bytes <= payload.size());
            std::memcpy(backing.data() + io.offset, payload.data(), io.bytes);
            break;
        case VolumeOperation::discard:
            RTRS_ASSERT(io.bytes <= geometry.discard_bytes_max);
            std::memset(backing.data() + io.offset, 0, io.bytes);
            break;
        case VolumeOperation::write_zeroes:
            // A block of an earlier geometry is on its way when that changes.
            RTRS_ASSERT(io.bytes <= std::max<std::uint64_t>(geometry.write_zeroes_bytes_max,
                                                            geometry.logical_block_bytes));
            std::memset(backing.data() + io.offset, 0, io.bytes);
            break;
        case VolumeOperation::extents:
            if (settings().extents.empty()) return rtrs::from_errno(EIO);
            break;
        case VolumeOperation::flush:
            break;
    }
    return {};
}

}  // namespace

Settings& settings() {
    static Settings s;
    return s;
}
std::vector<Operation>& log() { return submitted; }
std::uint32_t waiting() { return static_cast<std::uint32_t>(pending.size()); }
std::uint32_t permits_free() { return static_cast<std::uint32_t>(rtrs::permits_at_home->size()); }
std::byte* memory() { return backing.data(); }

void complete() {
    // What the handlers submit waits for the next call.
    running.swap(pending);
    if (settings().shuffled) std::ranges::shuffle(running, order);
    for (Pending& done : running) {
        const auto error = perform(done.io, done.permit.payload());
        done.io.responded(done.io.context, std::move(done.permit), error);
    }
    running.clear();
}

struct World::Parts : rtrs::Tracer, RemoteSessionHandler, RemoteVolumeHandler {
    Parts()
        : random(1),
          session({*settings().reactor, random, *this}, {}, *this),
          volume(session, {"vol1", settings().access}, *this) {}
    void trace(rtrs::TraceLevel, std::string_view, std::string_view, std::string_view) override {}
    void on_session_closed() override {}
    void on_volume_changed(RemoteVolume&) override {}
    void on_volume_closed(RemoteVolume&) override {}
    rtrs::Random random;
    RemoteSession session;
    RemoteVolume volume;
};
World::World() : parts(std::make_unique<Parts>()) {}
World::~World() {
    RTRS_ASSERT(pending.empty());
    rtrs::Reactor::cancel_turn_end(worker());
    submitted.clear();
}
RemoteVolume& World::volume() { return parts->volume; }

}  // namespace fake

struct NoLink final : rtrs::ClientSessionHandler {
    void on_link_up() override {}
    void on_link_down(std::error_code) override {}
    void on_closed() override {}
};

struct RemoteSession::Inside {
    NoLink handler;
    rtrs::ClientSession session;
    Inside(rtrs::SessionEnvironment environment, rtrs::ClientSessionOptions options)
        : session(environment, std::move(options), handler) {}
};
RemoteSession::RemoteSession(rtrs::SessionEnvironment environment,
                             rtrs::ClientSessionOptions options, RemoteSessionHandler&)
    : inside_(std::make_unique<Inside>(environment, std::move(options))) {}
RemoteSession::~RemoteSession() = default;
rtrs::ClientSession& RemoteSession::rtrs() noexcept { return inside_->session; }

struct RemoteVolume::Inside {
    explicit Inside(RemoteVolumeOptions o) : options(std::move(o)) {}
    RemoteVolumeOptions options;
};
RemoteVolume::RemoteVolume(RemoteSession& session, RemoteVolumeOptions options,
                           RemoteVolumeHandler&)
    : inside_(std::make_unique<Inside>(std::move(options))), session_(session) {
    fake::backing = rtrs::LazyMemory(fake::settings().geometry.size_bytes);
}
RemoteVolume::~RemoteVolume() = default;
VolumeState RemoteVolume::state() const noexcept { return fake::settings().state; }
const std::string& RemoteVolume::reason() const noexcept { return fake::settings().reason; }
void RemoteVolume::limit_blocks(std::uint32_t bytes) { fake::settings().blocks_limit = bytes; }
rtrs::Instant RemoteVolume::since() const noexcept { return fake::settings().since; }
bool RemoteVolume::hold_time_over() const noexcept { return fake::settings().hold_time_over; }
bool RemoteVolume::waits_for_given_up() const noexcept {
    return fake::settings().waits_for_given_up;
}
std::error_code RemoteVolume::open_error() const noexcept { return fake::settings().open_error; }
const VolumeGeometry& RemoteVolume::geometry() const noexcept { return fake::settings().geometry; }
const RemoteVolumeOptions& RemoteVolume::options() const noexcept { return inside_->options; }
const VolumeLosses& RemoteVolume::losses() const noexcept { return fake::settings().losses; }
void RemoteVolume::lost_in_part() { ++fake::settings().losses.news; }
RemoteSession& RemoteVolume::session() noexcept { return session_; }
void RemoteVolume::submit(rtrs::Permit permit, const VolumeIo& io) {
    if (fake::settings().held) {
        fake::submitted.push_back({io, static_cast<std::uint32_t>(permit.id())});
    } else {
        fake::settings().reactor->at_turn_end(fake::worker());
    }
    fake::pending.push_back({std::move(permit), io});
}
std::expected<std::vector<ExtentDescriptor>, std::error_code> RemoteVolume::extents_in(
    const rtrs::Permit&) const {
    return fake::settings().extents;
}

}  // namespace rnbd
