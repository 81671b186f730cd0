#include "tests/sim/session_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "rtrs/limits.h"

namespace simtest {

void Recorder::trace(TraceLevel, std::string_view subsystem, std::string_view subject,
                     std::string_view text) {
    const auto at =
        std::chrono::duration_cast<std::chrono::milliseconds>(world_.now().time_since_epoch());
    lines_.push_back(fmt::format("{:>6} ms  {:<12}  {}  {}", at.count(), subsystem, subject, text));
}

bool Recorder::said(std::string_view text) const {
    return std::ranges::any_of(
        lines_, [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

void bury(void* object) {
    static auto& graves = *new std::vector<void*>;
    graves.push_back(object);
}

namespace {

void fill(MutableBytes to, std::uint64_t value) {
    for (std::size_t at = 0; at + 8 <= to.size(); at += 8) std::memcpy(&to[at], &value, 8);
}

bool filled(Bytes data, std::uint64_t value) {
    for (std::size_t at = 0; at + 8 <= data.size(); at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, &data[at], 8);
        if (word != value) return false;
    }
    return true;
}

}  // namespace

// --- ServerLife

struct ServerLife::Work {
    Work(ServerLife& its_life, ServerOp& its_op, Clock& clock)
        : life(its_life), op(its_op), timer(clock, this, [](void* self) {
              auto& work = *static_cast<Work*>(self);
              work.life.work_done(work);
          }) {}
    ServerLife& life;
    ServerOp& op;
    IoRequest io;
    bool executed = false;
    Timer timer;
};

ServerLife::ServerLife(SimWorld& world, SimHost& host, Disk& disk, Findings& findings,
                       Tracer& tracer, const ServerOptions& options, const FaultOptions& faults)
    : fabric(host.fabric(), host.clock(), faults),
      server({host.clock(), world.random(), tracer}, options, *this),
      world_(world),
      host_(host),
      disk_(disk),
      findings_(findings) {}

ServerLife::~ServerLife() = default;

std::error_code ServerLife::on_session_up(ServerSession& session) {
    if (turn_away) return turn_away;
    ++sessions_up;
    epochs_[&session] = world_.random().next() | 1;
    return {};
}

void ServerLife::on_session_down(ServerSession& session) {
    findings_.expect(epochs_.erase(&session) == 1, "a session that was not up went down");
    for (const auto& [work, owner] : works_) {
        findings_.expect(&work->op.session() != &session, "a session went down with work left");
    }
}

std::uint32_t ServerLife::in_flight() const {
    std::uint32_t sum = 0;
    for (const ServerSession* session : server.sessions()) sum += session->status().in_flight;
    return sum;
}

void ServerLife::on_request(ServerOp& op) {
    findings_.expect(!closed && epochs_.contains(&op.session()), "a request of no session");
    if (op.message().size() == 8) {
        std::memcpy(op.data().data(), &epochs_[&op.session()], 8);
        return op.respond({}, 8);
    }
    if (op.message().size() == 16) return waiting.push_back(&op);
    if (op.message().size() != sizeof(IoRequest)) return op.respond(from_errno(EINVAL));
    IoRequest io;
    std::memcpy(&io, op.message().data(), sizeof io);
    findings_.expect(io.epoch == epochs_[&op.session()], "a request of another epoch");
    findings_.expect(io.bytes == op.data().size(), "the data is not as long as the message says");
    Random& random = world_.random();
    if (service_max == Duration{0} || random.chance(1, 2)) {
        execute(op, io);
        return op.respond({}, static_cast<std::uint32_t>(io.bytes));
    }
    auto work = std::make_unique<Work>(*this, op, host_.clock());
    work->io = io;
    if (random.chance(1, 2)) {
        execute(op, io);
        work->executed = true;
    }
    work->timer.arm(world_.now() +
                    Duration(random.below(static_cast<std::uint64_t>(service_max.count()))));
    works_.emplace(work.get(), std::move(work));
}

void ServerLife::execute(ServerOp& op, const IoRequest& io) {
    std::uint64_t& value = disk_.values.at(io.block);
    if (op.direction() == Direction::read) {
        if (io.block % 2 == 0) op.use_answer_buffer();
        ++disk_.reads;
        return fill(op.data(), value);
    }
    ++disk_.writes;
    findings_.expect(filled(op.data(), io.value), "the data of a write is not what was sent");
    value = io.value;
}

void ServerLife::work_done(Work& work) {
    const auto owner = works_.extract(&work);
    if (!work.executed) execute(work.op, work.io);
    work.op.respond({}, static_cast<std::uint32_t>(work.io.bytes));
}

// --- ClientLife

ClientLife::ClientLife(SimWorld& world, SimHost& host, std::size_t blocks, Findings& findings,
                       Tracer& tracer, ClientSessionOptions options, const FaultOptions& faults)
    : fabric(host.fabric(), host.clock(), faults),
      session(
          {host.clock(), world.random(), tracer},
          [&] {
              for (PathAddress& path : options.paths) path.fabric = &fabric;
              return options;
          }(),
          *this),
      world_(world),
      findings_(findings),
      blocks_(blocks),
      pump_timer_(host.clock(), this, [](void* self) { static_cast<ClientLife*>(self)->pump(); }) {
    last_value_ = world.random().next() << 20;
}

void ClientLife::on_link_up() {
    ++links_up;
    findings_.expect(links_up == links_down + 1, "link up twice");
    findings_.expect(session.status().in_flight == 0, "the link is up with requests in flight");
    if (requests_.empty()) requests_.resize(session.queue_depth());
    ask_epoch();
}

void ClientLife::on_link_down(std::error_code reason) {
    ++links_down;
    findings_.expect(static_cast<bool>(reason), "link down without a reason");
    findings_.expect(links_up == links_down, "link down twice");
    open = false;
    if (when_lost) when_lost();
}

void ClientLife::ask_epoch() {
    if (asking_) return;
    asking_ = true;
    const std::byte message[8] = {};
    session.submit_user(
        Direction::read, message, 8,
        [](void* self, std::error_code error, Bytes response) {
            static_cast<ClientLife*>(self)->epoch_known(error, response);
        },
        this);
}

void ClientLife::epoch_known(std::error_code error, Bytes response) {
    asking_ = false;
    if (error) {
        findings_.expect(error == Error::path_lost || error == Error::closed,
                         "OPEN failed: " + error.message());
        if (error == Error::path_lost && session.link_up()) ask_epoch();
        return;
    }
    std::memcpy(&epoch_, response.data(), 8);
    open = true;
    for (std::uint32_t id = 0; id < session.permits_max(); ++id) {
        if (!session.held(PermitId{id})) continue;
        requests_[id].io.epoch = epoch_;
        const MutableBytes message = session.message(PermitId{id});
        findings_.expect(message.size() == sizeof(IoRequest), "a held message has another length");
        std::memcpy(message.data(), &epoch_, 8);
        session.resume(PermitId{id});
    }
    pump();
}

void ClientLife::run(std::uint32_t depth, std::uint64_t total, Pace pace) {
    depth_ = depth;
    pace_ = pace;
    total_ = made + total;
    pump();
}

void ClientLife::pump() {
    while (open && made < total_ && made - answered < depth_) {
        if (!issue()) break;
    }
    if (made < total_) {
        const std::uint64_t most_ns = pace_ == Pace::busy ? 1'000'000 : 10'000'000;
        pump_timer_.arm(world_.now() + Duration(1 + world_.random().below(most_ns)));
    }
}

bool ClientLife::issue() {
    auto permit = session.try_take();
    if (!permit) return false;
    const auto id = static_cast<std::uint32_t>(permit->id());
    Request& request = requests_.at(id);
    findings_.expect(!request.busy, "a permit was handed out twice");
    Random& random = world_.random();
    const bool first = made < blocks_.size() && !known_;
    request.io.epoch = epoch_;
    request.io.block = first ? made : random.below(blocks_.size());
    const std::uint64_t limit =
        random.chance(1, 50) ? session.max_io_bytes() : std::min(bytes_max, session.max_io_bytes());
    request.io.bytes = random.chance(1, 20) ? 0 : 8 * (1 + random.below(limit / 8));
    Block& block = blocks_[request.io.block];
    if (first && request.io.bytes == 0) request.io.bytes = 8;
    request.write = !first && !block.writing && !block.history.empty() && random.chance(1, 2);
    if (request.write && request.io.bytes == 0) request.io.bytes = 8;
    request.busy = true;
    if (request.write) {
        request.io.value = ++last_value_;
        block.history.push_back(request.io.value);
        block.writing = true;
        fill(permit->payload().first(request.io.bytes), request.io.value);
    } else {
        request.oldest = block.acknowledged;
        fill(permit->payload().first(request.io.bytes), 0xdeaddeaddeaddead);
    }
    std::byte message[sizeof(IoRequest)];
    std::memcpy(message, &request.io, sizeof message);
    ++made;
    session.submit(std::move(*permit),
                   {.direction = request.write ? Direction::write : Direction::read,
                    .message = message,
                    .payload_bytes = static_cast<std::uint32_t>(request.io.bytes),
                    .responded = responded,
                    .context = this});
    return true;
}

void ClientLife::responded(void* context, Permit permit, std::error_code error) {
    static_cast<ClientLife*>(context)->done(std::move(permit), error);
}

void ClientLife::done(Permit permit, std::error_code error) {
    Request& request = requests_.at(static_cast<std::uint32_t>(permit.id()));
    findings_.expect(request.busy, "a request was answered twice");
    request.busy = false;
    ++answered;
    if (request.write) blocks_[request.io.block].writing = false;
    if (error) {
        ++failed;
        ++errors[error];
        last_failure = world_.now();
        findings_.expect(errors_expected, "a request failed: " + error.message());
    } else if (request.write) {
        Block& block = blocks_[request.io.block];
        block.acknowledged = block.history.size() - 1;
    } else {
        check_read(request, permit.payload().first(request.io.bytes));
    }
    permit = Permit();
    if (pace_ == Pace::busy) pump();
}

void ClientLife::check_read(const Request& request, MutableBytes data) {
    if (data.empty()) return;
    Block& block = blocks_[request.io.block];
    std::uint64_t value = 0;
    std::memcpy(&value, data.data(), 8);
    findings_.expect(filled(data, value), "a read is torn");
    if (block.history.empty()) {  // what a life before left behind
        block.history.push_back(value);
        return;
    }
    const auto at = std::ranges::find(block.history, value);
    findings_.expect(at != block.history.end(), "a read returned what was never written");
    findings_.expect(at - block.history.begin() >= static_cast<std::ptrdiff_t>(request.oldest),
                     "a read returned what had been overwritten");
}

// --- Scene

SceneOptions quick_options(std::uint64_t seed) {
    SceneOptions options;
    options.sim.seed = seed;
    options.server = {.queue_depth = 16,
                      .chunk_bytes = 8192,
                      .heartbeat_interval = 100ms,
                      .heartbeat_timeout = 500ms,
                      .half_open_timeout = 1s};
    options.client.name = "host-a";
    options.client.io_connections = 2;
    options.client.connect_timeout = 500ms;
    options.client.heartbeat_interval = 100ms;
    options.client.heartbeat_timeout = 500ms;
    options.client.reconnect_delay_max = 200ms;
    return options;
}

namespace {
std::vector<std::string> addresses_of(std::size_t count, int host) {
    std::vector<std::string> addresses;
    for (std::size_t i = 0; i < count; ++i) addresses.push_back(fmt::format("10.0.{}.{}", i, host));
    return addresses;
}
}  // namespace

Scene::Scene(SceneOptions its_options)
    : options(std::move(its_options)),
      world(options.sim),
      server_host(world.add_host(addresses_of(options.addresses, 1))),
      client_host(world.add_host(addresses_of(options.addresses, 2))),
      recorder(world),
      disk(options.blocks) {
    for (std::size_t i = 0; i < options.addresses; ++i) {
        options.client.paths.push_back({nullptr, "", address(i)});
    }
}

Scene::~Scene() {
    world.abandon();
    bury(client.release());
    bury(server.release());
}

std::string Scene::address(std::size_t index) const { return server_host.address(index) + ":1235"; }

void Scene::start_server() {
    server = std::make_unique<ServerLife>(world, server_host, disk, findings, recorder,
                                          options.server, options.server_faults);
    const auto listening = server->server.listen(server->fabric, "0.0.0.0:1235");
    findings.expect(listening.has_value(), "cannot listen");
}

void Scene::start_client() {
    client = std::make_unique<ClientLife>(world, client_host, options.blocks, findings, recorder,
                                          options.client, options.client_faults);
    const auto error = client->session.open();
    findings.expect(!error, "cannot open: " + error.message());
}

void Scene::crash_server(SimHost::CrashSeen seen) {
    crashed = true;
    server_host.crash(seen);
    bury(server.release());
}

void Scene::crash_client(SimHost::CrashSeen seen) {
    crashed = true;
    client_host.crash(seen);
    bury(client.release());
}

bool Scene::close_server(Duration limit) {
    server->server.close();
    if (!run_until([&] { return server->closed; }, limit)) return false;
    server.reset();
    return true;
}

bool Scene::close_client(Duration limit) {
    client->session.close();
    if (!run_until([&] { return client->closed; }, limit)) return false;
    findings.expect(client->idle(), "the session closed with requests unanswered");
    client.reset();
    return true;
}

bool Scene::at_rest() const {
    const ClientSessionStatus status = client->session.status();
    return client->idle() && status.in_flight == 0 && status.held == 0 &&
           status.permits_free == client->session.permits_max() && server->in_flight() == 0;
}

}  // namespace simtest
