#include "tests/sim/failover/server_app.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "rtrs/base/planted.h"

namespace failover {

using rnbd::MessageType;
using rtrs::from_errno;
using rtrs::ServerOp;
using rtrs::ServerSession;

void bury(void* object) {
    static auto& graves = *new std::vector<void*>;
    graves.push_back(object);
}

// One process.
class ServerMachine::Life final : public rtrs::ServerHandler {
  public:
    Life(ServerMachine& machine, const Surroundings& surroundings, std::uint32_t number,
         const rtrs::ServerOptions& options)
        : server({machine.host.clock(), surroundings.world.random(), surroundings.tracer}, options,
                 *this),
          machine_(machine),
          surroundings_(surroundings),
          number_(number) {
        if (!server.listen(machine.host.fabric(), "0.0.0.0:1234")) {
            surroundings.findings.add("a server cannot listen", machine.host.address());
        }
    }

    std::error_code on_session_up(ServerSession& session) override;
    void on_session_down(ServerSession& session) override;
    void on_request(ServerOp& op) override;
    void on_closed() override { closed = true; }

    void close_a_device();
    void take_a_device(std::uint32_t which);
    void cache_is_another(ServerVolume& volume);

    rtrs::Server server;
    bool closed = false;

  private:
    struct Device {
        std::uint32_t id = 0;
        ServerVolume* volume = nullptr;
        std::uint32_t in_flight = 0;
        ServerOp* closing = nullptr;
        bool taken = false;
        // Until it is asked for again: the volume has another epoch.
        bool asks_anew = false;
        std::uint64_t losses_told = 0;
        bool ends() const noexcept { return closing != nullptr || taken; }
    };
    struct Session {
        ServerSession* session = nullptr;
        Writer writer = 0;
        rnbd::Feature features = rnbd::Feature::none;
        std::vector<std::unique_ptr<Device>> devices;
        std::uint32_t next_device = 0;
    };
    // An operation that the storage has.
    struct Work {
        Life* life = nullptr;
        ServerOp* op = nullptr;
        Device* device = nullptr;
        std::uint32_t bytes = 0;
        BlockOperation operation = BlockOperation::read;
        std::uint64_t losses = 0;  // when it began
    };

    void session_info(Session& session, ServerOp& op);
    void open(Session& session, ServerOp& op);
    void close(Session& session, ServerOp& op);
    void io(Session& session, ServerOp& op);
    int may_open(const Session& session, const ServerVolume& volume) const;
    void describe(Device& device, ServerOp& op) const;
    static Device* find(Session& session, std::uint32_t id);
    static void completed(void* context, int error);
    void done(Work& work, int error);
    static int told_as(const Work& work, const Session& session, int error);

    ServerMachine& machine_;
    const Surroundings& surroundings_;
    std::uint32_t number_;
    std::uint32_t sessions_made_ = 0;
    std::vector<std::unique_ptr<Session>> sessions_;
    std::vector<std::unique_ptr<Work>> works_;
    std::vector<Work*> free_works_;
};

std::error_code ServerMachine::Life::on_session_up(ServerSession& session) {
    for (const auto& other : sessions_) {
        if (other->session->name() == session.name()) {
            surroundings_.findings.add("two sessions of one client are up", session.name());
        }
    }
    auto ours = std::make_unique<Session>();
    ours->session = &session;
    ours->writer = Writer{machine_.number_} << 48 | Writer{number_} << 24 | ++sessions_made_;
    ours->next_device = static_cast<std::uint32_t>(surroundings_.random.below(2));
    session.context = ours.get();
    sessions_.push_back(std::move(ours));
    return {};
}

void ServerMachine::Life::on_session_down(ServerSession& session) {
    auto* gone = static_cast<Session*>(session.context);
    for (const auto& device : gone->devices) {
        if (device->in_flight > 0 || device->closing != nullptr) {
            surroundings_.findings.add("a session went down with operations left", session.name());
        }
    }
    std::erase_if(sessions_, [&](const auto& each) { return each.get() == gone; });
}

void ServerMachine::Life::on_request(ServerOp& op) {
    auto* session = static_cast<Session*>(op.session().context);
    const bool ours =
        std::ranges::any_of(sessions_, [&](const auto& each) { return each.get() == session; });
    if (closed || !ours) {
        surroundings_.findings.add("a request of no session", "");
        return op.respond(from_errno(EINVAL));
    }
    const auto type = rnbd::request_type(op.message());
    if (!type) return op.respond(from_errno(EINVAL));
    switch (*type) {
        case MessageType::session_info:
            return session_info(*session, op);
        case MessageType::open:
            return open(*session, op);
        case MessageType::close:
            return close(*session, op);
        case MessageType::io:
            return io(*session, op);
        default:
            return op.respond(from_errno(EINVAL));
    }
}

void ServerMachine::Life::session_info(Session& session, ServerOp& op) {
    const auto message = rnbd::SessionInfoMessage::parse(op.message());
    if (!message) return op.respond(from_errno(EINVAL));
    const auto response = rnbd::SessionInfoResponse::to(
        *message, surroundings_.options.epoch != 0 ? rnbd::Feature::epoch : rnbd::Feature::none);
    session.features = response.features;
    response.emit(op.data());
    op.respond({}, rnbd::SessionInfoResponse::wire_bytes);
}

int ServerMachine::Life::may_open(const Session& session, const ServerVolume& volume) const {
    // The lock: the operations of the process before have to end.
    if (!volume.storage.free_of_orphans() && !rtrs::planted(rtrs::PlantedBug::lock_off)) {
        return ENOENT;
    }
    for (const auto& device : session.devices) {
        if (device->volume == &volume && device->ends()) return EPERM;
    }
    for (const auto& other : sessions_) {
        if (other.get() == &session || other->session->name() == session.session->name()) continue;
        for (const auto& device : other->devices) {
            if (device->volume == &volume) return EPERM;
        }
    }
    return 0;
}

void ServerMachine::Life::describe(Device& device, ServerOp& op) const {
    const SimStorage& storage = device.volume->storage;
    const rnbd::OpenResponse response{
        .device_id = device.id,
        .sectors = surroundings_.options.zeroes != 0
                       ? place_of_zeroes(0, UINT32_MAX)
                       : std::uint64_t{storage.medium.blocks()} * block_bytes / rnbd::sector_bytes,
        .max_hw_sectors = 8,
        .max_write_zeroes_sectors = 8,
        .max_discard_sectors = 8,
        .physical_block_bytes = block_bytes,
        .logical_block_bytes = block_bytes,
        .fua = true,
        .write_back = true,
        .epoch = std::uint64_t{machine_.number_ + 1} << 32 | (storage.medium.boot() + 1)};
    response.emit(op.data());
    op.respond({}, rnbd::OpenResponse::wire_bytes);
}

void ServerMachine::Life::open(Session& session, ServerOp& op) {
    const auto message = rnbd::OpenMessage::parse(op.message());
    if (!message || op.data().size() < rnbd::OpenResponse::wire_bytes) {
        return op.respond(from_errno(EINVAL));
    }
    for (const auto& device : session.devices) {
        if (device->volume->name != message->device_name || device->ends()) continue;
        if (std::exchange(device->asks_anew, false)) {
            device->losses_told = device->volume->losses;
            // What was sent before names the old one.
            device->id = session.next_device++;
        }
        return describe(*device, op);
    }
    const auto volume = std::ranges::find_if(
        machine_.volumes, [&](const auto& each) { return each->name == message->device_name; });
    if (volume == machine_.volumes.end()) return op.respond(from_errno(ENOENT));
    if (const int error = may_open(session, **volume)) return op.respond(from_errno(error));
    auto device = std::make_unique<Device>();
    device->volume = volume->get();
    device->losses_told = device->volume->losses;
    // Small numbers: the id of one volume today is that of another in tomorrow's session. Within a
    // session none comes back, since a client may not know yet that its device was closed.
    device->id = session.next_device++;
    session.devices.push_back(std::move(device));
    describe(*session.devices.back(), op);
}

ServerMachine::Life::Device* ServerMachine::Life::find(Session& session, std::uint32_t id) {
    const auto found =
        std::ranges::find_if(session.devices, [&](const auto& each) { return each->id == id; });
    return found == session.devices.end() ? nullptr : found->get();
}

void ServerMachine::Life::close(Session& session, ServerOp& op) {
    const auto message = rnbd::CloseMessage::parse(op.message());
    Device* device = message ? find(session, message->device_id) : nullptr;
    if (device == nullptr || device->closing != nullptr) return op.respond({});
    if (device->in_flight > 0) {
        device->closing = &op;
        return;
    }
    std::erase_if(session.devices, [&](const auto& each) { return each.get() == device; });
    op.respond({});
}

void ServerMachine::Life::io(Session& session, ServerOp& op) {
    const auto message = rnbd::IoMessage::parse(op.message());
    if (!message || !message->check_data(op.data().size())) return op.respond(from_errno(EINVAL));
    Device* device = find(session, message->device_id);
    if (device == nullptr || device->ends() || device->asks_anew) {
        return op.respond(from_errno(ENOTCONN));
    }
    const bool flush = message->operation == rnbd::Operation::flush;
    const bool zeroes = message->operation == rnbd::Operation::discard ||
                        message->operation == rnbd::Operation::write_zeroes;
    const std::uint64_t place = message->sector * rnbd::sector_bytes / block_bytes;
    const auto block = static_cast<std::uint32_t>(zeroes ? place % Medium::blocks_max : place);
    if (!flush &&
        (block >= device->volume->storage.medium.blocks() || message->bytes != block_bytes)) {
        return op.respond(from_errno(EINVAL));
    }
    if (free_works_.empty()) {
        works_.push_back(std::make_unique<Work>());
        free_works_.push_back(works_.back().get());
    }
    Work& work = *free_works_.back();
    free_works_.pop_back();
    const bool read = message->operation == rnbd::Operation::read;
    if (read) op.use_answer_buffer();  // for those that find one free
    const bool through = has(message->flags, rnbd::IoFlag::fua);
    const BlockOperation operation = flush     ? BlockOperation::flush
                                     : read    ? BlockOperation::read
                                     : through ? BlockOperation::write_through
                                               : BlockOperation::write;
    work = {this, &op, device, read ? block_bytes : 0, operation, device->volume->losses};
    ++device->in_flight;
    device->volume->storage.submit(
        {.operation = operation,
         .block = flush ? 0 : block,
         .zeroes = zeroes ? static_cast<Number>(place / Medium::blocks_max) : 0,
         .data = op.data(),
         .writer = session.writer,
         .completed = completed,
         .context = &work});
}

void ServerMachine::Life::completed(void* context, int error) {
    auto& work = *static_cast<Work*>(context);
    work.life->done(work, error);
}

void ServerMachine::Life::done(Work& work, int error) {
    const Work was = work;
    free_works_.push_back(&work);
    auto& session = *static_cast<Session*>(was.op->session().context);
    error = told_as(was, session, error);
    --was.device->in_flight;
    ServerOp* closing = was.device->in_flight == 0 ? was.device->closing : nullptr;
    if (was.device->in_flight == 0 && was.device->ends()) {
        std::erase_if(session.devices, [&](const auto& each) { return each.get() == was.device; });
    }
    was.op->respond(from_errno(error), error == 0 ? was.bytes : 0);
    if (closing != nullptr) closing->respond({});
}

// As rnbd-server's Target has it.
int ServerMachine::Life::told_as(const Work& work, const Session& session, int error) {
    Device& device = *work.device;
    const std::uint64_t losses = device.volume->losses;
    if (work.operation == BlockOperation::flush) {
        const bool untold = std::exchange(device.losses_told, losses) != losses;
        if (untold || work.losses != losses) {
            return device.asks_anew || device.taken ? ENOTCONN : EIO;
        }
    }
    const bool either_cache = error == 0 && work.operation == BlockOperation::write &&
                              work.losses != losses && has(session.features, rnbd::Feature::epoch);
    return either_cache ? ENOTCONN : error;
}

void ServerMachine::Life::take_a_device(std::uint32_t which) {
    for (const auto& session : sessions_) {
        if (session->devices.empty()) continue;
        Device& device = *session->devices[which % session->devices.size()];
        device.taken = true;
        if (device.in_flight > 0) return;
        std::erase_if(session->devices, [&](const auto& each) { return each.get() == &device; });
        return;
    }
}

void ServerMachine::Life::cache_is_another(ServerVolume& volume) {
    for (const auto& session : sessions_) {
        if (!has(session->features, rnbd::Feature::epoch)) continue;
        for (const auto& device : session->devices) {
            if (device->volume == &volume) device->asks_anew = true;
        }
    }
}

void ServerMachine::Life::close_a_device() {
    for (const auto& session : sessions_) {
        const auto idle = std::ranges::find_if(session->devices, [](const auto& each) {
            return each->in_flight == 0 && !each->ends();
        });
        if (idle == session->devices.end()) continue;
        session->devices.erase(idle);
        return;
    }
}

// --- ServerMachine

ServerMachine::ServerMachine(const Surroundings& surroundings, rtrs::SimHost& its_host,
                             std::uint32_t number)
    : host(its_host), surroundings_(surroundings), number_(number) {
    const Options& options = surroundings.options;
    server_options_ = {.queue_depth = options.queue_depth,
                       .chunk_bytes = 8192,
                       .always_invalidate = options.always_invalidate != 0,
                       .heartbeat_interval = milliseconds(options.heartbeat_ms),
                       .heartbeat_timeout = milliseconds(options.heartbeat_timeout_ms),
                       .half_open_timeout = milliseconds(options.half_open_ms),
                       .protection = options.server_failover != 0 ? rtrs::Protection::exactly_once
                                                                  : rtrs::Protection::fenced};
    if (options.messages != 0) server_options_.messages = rtrs::MessageOptions{};
}

ServerVolume& ServerMachine::add_volume(std::uint8_t number) {
    volumes.push_back(std::unique_ptr<ServerVolume>(
        new ServerVolume{fmt::format("vol{}", number), SimStorage(surroundings_, host, number)}));
    return *volumes.back();
}

void ServerMachine::start() {
    if (life_ != nullptr || !host.up()) return;
    life_ = new Life(*this, surroundings_, ++lives_, server_options_);
}

void ServerMachine::kill() {
    if (life_ == nullptr) return;
    host.crash(rtrs::SimHost::CrashSeen::by_reset);
    bury(std::exchange(life_, nullptr));
    died = true;
    stopping = false;
    for (const auto& volume : volumes) volume->storage.orphan();
}

void ServerMachine::crash() {
    if (!host.up()) return;
    host.crash(rtrs::SimHost::CrashSeen::never);
    if (life_ != nullptr) bury(std::exchange(life_, nullptr));
    died = true;
    stopping = false;
    for (const auto& volume : volumes) volume->storage.crash();
}

void ServerMachine::restart() {
    host.restart();
    start();
}

void ServerMachine::stop() {
    if (life_ == nullptr || stopping) return;
    stopping = true;
    life_->server.close();
}

bool ServerMachine::stopped() const { return life_ != nullptr && life_->closed; }

void ServerMachine::remove() {
    delete std::exchange(life_, nullptr);
    stopping = false;
}

void ServerMachine::reconfigure() {
    rtrs::Random& random = surroundings_.random;
    server_options_.always_invalidate = random.chance(1, 2);
    server_options_.queue_depth += static_cast<std::uint32_t>(random.below(4));
    if (surroundings_.options.flips == 0) return;
    server_options_.protection =
        random.chance(1, 2) ? rtrs::Protection::exactly_once : rtrs::Protection::fenced;
}

void ServerMachine::close_a_device() {
    if (life_ != nullptr) life_->close_a_device();
}

void ServerMachine::close_a_session() {
    if (life_ == nullptr) return;
    const auto sessions = life_->server.sessions();
    if (sessions.empty()) return;
    sessions[surroundings_.random.below(sessions.size())]->close("closed by an operator");
}

void ServerMachine::take_a_device(std::uint32_t which) {
    if (life_ != nullptr) life_->take_a_device(which);
}

void ServerMachine::lose_a_cache(std::uint32_t which) {
    ServerVolume& volume = *volumes[which % volumes.size()];
    if (life_ == nullptr || !volume.storage.free_of_orphans()) return;
    volume.storage.lose_cache();
    ++volume.losses;
    life_->cache_is_another(volume);
}

std::uint32_t ServerMachine::in_flight() const {
    std::uint32_t sum = 0;
    if (life_ == nullptr) return 0;
    for (const rtrs::ServerSession* session : life_->server.sessions()) {
        sum += session->status().in_flight;
    }
    return sum;
}

std::size_t ServerMachine::sessions() const {
    return life_ == nullptr ? 0 : life_->server.sessions().size();
}

}  // namespace failover
