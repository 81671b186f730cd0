// ClientSession: permits, requests in flight, and which path carries them. See client.h.

#include <algorithm>
#include <cstring>
#include <deque>

#include "rtrs/base/assert.h"
#include "rtrs/base/lazy_array.h"
#include "rtrs/client.h"
#include "rtrs/core/client_path.h"
#include "rtrs/core/permit_pool.h"
#include "rtrs/limits.h"
#include "rtrs/wire/info.h"
#include "rtrs/wire/request.h"

namespace rtrs {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t control_bytes = page_bytes;  // longest response of a user message
// Per permit: user message, request message behind it.
constexpr std::size_t header_stride = 576;
static_assert(ClientSession::user_message_bytes_max + ReadMessage::wire_bytes_max <= header_stride);
constexpr std::uint32_t io_connections_max = 64;
constexpr std::uint16_t no_path = UINT16_MAX;

std::size_t round_to_page(std::size_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

// Names are unique per request slot; the array behind it is zero-initialised memory.
enum class RequestState : std::uint8_t {
    free = 0,   // the permit is in the pool or in its taker's hands
    in_flight,  // posted on `path`
    held,       // waits for a path, or for its owner's resume()
    failing,    // its error is reported in a coming turn
};

struct Request {
    RequestState state;
    bool owner_decides;  // held until resume() or fail()
    Direction direction;
    std::uint16_t message_bytes;
    std::uint16_t path;  // in flight: where; held: the path that must come back first, or no_path
    std::uint16_t connection;
    std::uint32_t payload_bytes;
    int error;  // failing
    const std::error_category* error_category;
    ClientRequest::Responded responded;
    void* context;
};

struct UserRequest {
    Direction direction;
    std::vector<std::byte> message;
    std::uint32_t response_bytes;
    ClientSession::UserResponded responded;
    void* context;
};

}  // namespace

struct ClientSession::Inside final : ClientPathOwner {
    Inside(ClientSession& its_self, SessionEnvironment its_environment,
           ClientSessionOptions its_options, ClientSessionHandler& its_handler);

    // ClientPathOwner
    std::error_code accept_geometry(ClientPath& path, const ChunkGeometry& geometry) override;
    bool any_path_connected() const noexcept override { return paths_up > 0; }
    void path_up(ClientPath& path) override;
    void path_down(ClientPath& path, std::error_code reason) override;
    void path_drained(ClientPath& path) override;
    void path_closed(ClientPath& path) override;
    bool answered(ClientPath& path, std::uint16_t connection, std::uint32_t permit,
                  int error) override;

    std::error_code check_options() const;
    std::error_code make_paths();
    std::error_code open();
    void open_other_paths();
    void announce_link_if_ready();
    void resend_fenced(std::uint16_t path);
    void close();
    std::error_code allocate(const ChunkGeometry& geometry);

    void submit(std::uint32_t permit, const ClientRequest& request);
    void send_or_hold(std::uint32_t permit);
    void post(std::uint32_t permit, std::uint16_t path);
    std::uint16_t choose_path() noexcept;
    void fail_later(std::uint32_t permit, std::error_code error);
    void fail_held(std::error_code error);
    void report_failures();
    void put(PermitId id);
    void serve_waiters();

    void send_next_user();
    void user_answered(int error);

    std::uint16_t index_of(const ClientPath& path) const noexcept;
    std::byte* header(std::uint32_t permit) const noexcept {
        return header_memory.data() + permit * header_stride;
    }
    std::uint32_t user_permit() const noexcept { return geometry.queue_depth - 1; }
    void finish_close_if_done();
    void trace(TraceLevel level, std::string_view text) {
        environment.tracer.trace(level, "rtrs.session", options.name, text);
    }

    ClientSession& self;
    SessionEnvironment environment;
    ClientSessionOptions options;
    ClientSessionHandler& handler;
    Uuid uuid;

    ChunkGeometry geometry{};  // all 0 until the first path was accepted
    std::size_t payload_stride = 0;
    LazyMemory payload_memory;
    LazyMemory header_memory;
    LazyMemory control_memory;
    std::vector<std::unique_ptr<FabricMemory>> memories;
    LazyArray<Request> requests;
    PermitPool pool;

    std::vector<std::unique_ptr<ClientPath>> paths;
    std::uint32_t paths_up = 0;
    // What the owner was told. Later than the first path when a lost one is still draining.
    bool link_up = false;
    std::uint16_t next_path = 0;
    bool other_paths_opened = false;

    Timer hold_timer;
    Timer failure_timer;
    Timer waiter_timer;
    std::vector<std::uint32_t> failures;
    bool hold_time_over = false;

    std::deque<UserRequest> users;
    std::uint16_t user_path = no_path;  // where users.front() was posted
    bool user_failing = false;

    std::uint32_t in_flight = 0;
    std::uint32_t held = 0;
    Instant since{};
    std::string reason = "not opened";
    bool opened = false;
    bool closing = false;
    bool closed = false;
};

ClientSession::Inside::Inside(ClientSession& its_self, SessionEnvironment its_environment,
                              ClientSessionOptions its_options, ClientSessionHandler& its_handler)
    : self(its_self),
      environment(its_environment),
      options(std::move(its_options)),
      handler(its_handler),
      uuid(Uuid::random(environment.random)),
      hold_timer(environment.clock, this,
                 [](void* context) {
                     auto& inside = *static_cast<Inside*>(context);
                     inside.hold_time_over = true;
                     inside.trace(TraceLevel::error, "hold time is over: failing requests");
                     inside.fail_held(Error::no_path);
                 }),
      failure_timer(environment.clock, this,
                    [](void* context) { static_cast<Inside*>(context)->report_failures(); }),
      waiter_timer(environment.clock, this,
                   [](void* context) { static_cast<Inside*>(context)->serve_waiters(); }) {}

std::error_code ClientSession::Inside::check_options() const {
    if (!check_session_name(options.name) || options.paths.empty() ||
        options.paths.size() > limits::paths_max || options.io_connections < 1 ||
        options.io_connections > io_connections_max ||
        options.heartbeat_interval <= Duration::zero() ||
        options.heartbeat_timeout <= options.heartbeat_interval ||
        options.reconnect_delay_min <= Duration::zero() ||
        options.reconnect_delay_max < options.reconnect_delay_min ||
        options.connect_timeout <= Duration::zero()) {
        return from_errno(EINVAL);
    }
    return {};
}

std::error_code ClientSession::Inside::make_paths() {
    control_memory = LazyMemory(control_bytes);
    if (!control_memory) return from_errno(ENOMEM);
    for (const PathAddress& address : options.paths) {
        auto same = std::ranges::find_if(
            memories, [&](const auto& memory) { return memory->fabric == address.fabric; });
        if (same == memories.end()) {
            auto memory = std::make_unique<FabricMemory>();
            memory->fabric = address.fabric;
            auto domain = address.fabric->create_domain();
            if (!domain) return domain.error();
            memory->domain = std::move(*domain);
            auto control = memory->domain->register_memory(control_memory.bytes(),
                                                           Access::local | Access::remote_write);
            if (!control) return control.error();
            memory->control = std::move(*control);
            same = memories.insert(memories.end(), std::move(memory));
        }
        paths.push_back(
            std::make_unique<ClientPath>(environment, options, address, uuid, **same, *this));
    }
    return {};
}

std::error_code ClientSession::Inside::open() {
    if (const auto error = check_options()) return error;
    if (const auto error = make_paths()) {
        paths.clear();
        memories.clear();
        return error;
    }
    opened = true;
    since = environment.clock.now();
    reason = "connecting";
    if (options.hold_time) hold_timer.arm(since + *options.hold_time);
    // The first path makes the session; the others join it (see path_up) or, if the first cannot
    // be reached, make it themselves.
    paths.front()->open();
    return {};
}

void ClientSession::Inside::open_other_paths() {
    if (other_paths_opened || closing) return;
    other_paths_opened = true;
    for (const auto& path : paths) path->open();
}

std::error_code ClientSession::Inside::accept_geometry(ClientPath&, const ChunkGeometry& offered) {
    if (geometry.queue_depth == 0) return allocate(offered);
    if (offered.queue_depth != geometry.queue_depth) {
        trace(TraceLevel::error, "the server's queue depth has changed; this session keeps " +
                                     std::to_string(geometry.queue_depth));
        return Error::rejected;
    }
    // Requests in flight were cut to the old sizes.
    if (offered.io_bytes_max < geometry.io_bytes_max ||
        offered.header_bytes_max < user_message_bytes_max + ReadMessage::wire_bytes_max) {
        trace(TraceLevel::error, "the server's chunks have shrunk; this session needs " +
                                     std::to_string(geometry.io_bytes_max) + " bytes of data");
        return Error::rejected;
    }
    return {};
}

std::error_code ClientSession::Inside::allocate(const ChunkGeometry& offered) {
    // One permit is kept for user messages, so that a volume can be opened again while all others
    // belong to requests that wait for it.
    if (offered.queue_depth < 2 ||
        offered.header_bytes_max < user_message_bytes_max + ReadMessage::wire_bytes_max) {
        trace(TraceLevel::error, "the server offers a queue depth below 2 or too short headers");
        return Error::protocol;
    }
    // An earlier attempt may have got stuck half way: no region outlives its memory.
    for (const auto& memory : memories) {
        memory->payload.reset();
        memory->headers.reset();
    }
    payload_stride = round_to_page(offered.io_bytes_max);
    payload_memory = LazyMemory(payload_stride * (offered.queue_depth - 1));
    header_memory = LazyMemory(round_to_page(header_stride * offered.queue_depth));
    requests = LazyArray<Request>(offered.queue_depth);
    if (!payload_memory || !header_memory || !requests) return from_errno(ENOMEM);
    for (const auto& memory : memories) {
        auto payload = memory->domain->register_memory(payload_memory.bytes(),
                                                       Access::local | Access::remote_write);
        if (!payload) return payload.error();
        auto headers = memory->domain->register_memory(header_memory.bytes(), Access::local);
        if (!headers) return headers.error();
        memory->payload = std::move(*payload);
        memory->headers = std::move(*headers);
    }
    geometry = offered;
    pool.fill(geometry.queue_depth - 1);
    failures.reserve(geometry.queue_depth);
    return {};
}

std::uint16_t ClientSession::Inside::index_of(const ClientPath& path) const noexcept {
    for (std::size_t i = 0; i < paths.size(); ++i) {
        if (paths[i].get() == &path) return static_cast<std::uint16_t>(i);
    }
    RTRS_ASSERT(false);
    return no_path;
}

void ClientSession::Inside::path_up(ClientPath& path) {
    ++paths_up;
    if (!link_up) return announce_link_if_ready();
    resend_fenced(index_of(path));
    send_next_user();
}

// Not while a lost path drains: its requests would not be held yet, and the owner could not change
// their messages, which name what the server may have forgotten. Nor before the user messages that
// were lost with it are reported.
void ClientSession::Inside::announce_link_if_ready() {
    if (link_up || paths_up == 0 || in_flight > 0 || !users.empty()) return;
    link_up = true;
    since = environment.clock.now();
    reason.clear();
    hold_timer.disarm();
    hold_time_over = false;
    trace(TraceLevel::info, "link up");
    handler.on_link_up();
    open_other_paths();
    send_next_user();
}

// What was in flight on this path when it was lost: its acceptance proves that the server has
// finished with the first attempts (section 7.5 of the wire reference; our server likewise).
void ClientSession::Inside::resend_fenced(std::uint16_t path) {
    for (std::uint32_t id = 0; id + 1 < geometry.queue_depth && held > 0; ++id) {
        Request& request = requests[id];
        if (request.state == RequestState::held && !request.owner_decides && request.path == path) {
            request.path = no_path;
            send_or_hold(id);
        }
    }
}

void ClientSession::Inside::path_down(ClientPath&, std::error_code why) {
    RTRS_ASSERT(paths_up > 0);
    if (--paths_up > 0 || !link_up) return;
    link_up = false;
    since = environment.clock.now();
    reason = "no path is up: " + why.message();
    if (closing) {
        trace(TraceLevel::info, "link down");
    } else {
        trace(TraceLevel::warning, "link down: requests are held");
    }
    if (options.hold_time && !closing) hold_timer.arm(since + *options.hold_time);
    handler.on_link_down(why);
}

void ClientSession::Inside::path_drained(ClientPath& path) {
    const std::uint16_t index = index_of(path);
    for (std::uint32_t id = 0; id + 1 < geometry.queue_depth && in_flight > 0; ++id) {
        Request& request = requests[id];
        if (request.state != RequestState::in_flight || request.path != index) continue;
        request.state = RequestState::held;
        --in_flight;
        ++held;
    }
    if (!link_up) {
        // Also what another path left behind before: the server may forget all it had open.
        for (std::uint32_t id = 0; id + 1 < geometry.queue_depth && held > 0; ++id) {
            if (requests[id].state == RequestState::held) requests[id].owner_decides = true;
        }
    }
    if (user_path == index) {
        user_path = no_path;
        user_failing = true;
    }
    if (!users.empty() && (!link_up || user_failing)) {
        failure_timer.arm(environment.clock.now());
    }
    if (closing) return fail_held(Error::closed);
    if (hold_time_over) fail_held(Error::no_path);
    open_other_paths();  // the first could not be reached
    announce_link_if_ready();
}

void ClientSession::Inside::path_closed(ClientPath& path) {
    if (!closing) {
        const std::uint16_t index = index_of(path);
        const bool all = std::ranges::all_of(paths, [](const auto& p) { return p->closed(); });
        if (all) {
            reason = "every path has used up its reconnect attempts";
            trace(TraceLevel::error, reason);
        }
        // Nobody will fence these attempts any more: their result stays unknown.
        for (std::uint32_t id = 0; id + 1 < geometry.queue_depth && held > 0; ++id) {
            const Request& request = requests[id];
            if (request.state == RequestState::held && (request.path == index || all)) {
                fail_later(id, Error::path_lost);
            }
        }
        if (all) hold_time_over = true;
        return;
    }
    finish_close_if_done();
}

bool ClientSession::Inside::answered(ClientPath& path, std::uint16_t connection,
                                     std::uint32_t permit, int error) {
    if (permit == user_permit()) {
        if (user_path == no_path || paths[user_path].get() != &path || connection != 0)
            return false;
        user_answered(error);
        return true;
    }
    Request& request = requests[permit];
    if (request.state != RequestState::in_flight || paths[request.path].get() != &path ||
        request.connection != connection) {
        return false;
    }
    request.state = RequestState::free;
    --in_flight;
    request.responded(request.context, Permit(self, PermitId{permit}), from_errno(error));
    return true;
}

void ClientSession::Inside::submit(std::uint32_t permit, const ClientRequest& what) {
    Request& request = requests[permit];
    RTRS_ASSERT(request.state == RequestState::free);
    RTRS_ASSERT(what.payload_bytes <= geometry.io_bytes_max);
    RTRS_ASSERT(what.message.size() <= user_message_bytes_max && what.responded != nullptr);
    request.owner_decides = false;
    request.direction = what.direction;
    request.message_bytes = static_cast<std::uint16_t>(what.message.size());
    request.path = no_path;
    request.payload_bytes = what.payload_bytes;
    request.responded = what.responded;
    request.context = what.context;
    std::memcpy(header(permit), what.message.data(), what.message.size());
    request.state = RequestState::held;
    ++held;
    if (closing) return fail_later(permit, Error::closed);
    if (hold_time_over) return fail_later(permit, Error::no_path);
    request.owner_decides = !link_up;
    if (!request.owner_decides) send_or_hold(permit);
}

void ClientSession::Inside::send_or_hold(std::uint32_t permit) {
    const std::uint16_t path = choose_path();
    if (path == no_path) return;
    post(permit, path);
}

std::uint16_t ClientSession::Inside::choose_path() noexcept {
    const auto count = static_cast<std::uint16_t>(paths.size());
    for (std::uint16_t tried = 0; tried < count; ++tried) {
        const std::uint16_t index = next_path;
        next_path = static_cast<std::uint16_t>(next_path + 1 == count ? 0 : next_path + 1);
        if (paths[index]->connected()) return index;
    }
    return no_path;
}

void ClientSession::Inside::post(std::uint32_t permit, std::uint16_t path) {
    Request& request = requests[permit];
    RTRS_ASSERT(request.state == RequestState::held);
    request.state = RequestState::in_flight;
    request.path = path;
    ClientPath& on = *paths[path];
    // A permit always travels on the same connection of a path: what hangs on it stays on one core.
    request.connection = static_cast<std::uint16_t>(1 + permit % on.io_connections());
    --held;
    ++in_flight;
    const std::size_t at = permit * payload_stride;
    on.post({.permit = permit,
             .direction = request.direction,
             .payload_bytes = request.payload_bytes,
             .message_bytes = request.message_bytes,
             .payload = {payload_memory.data() + at, request.payload_bytes},
             .target = on.memory().payload->remote(at, request.payload_bytes),
             .header = header(permit),
             .connection = request.connection});
}

void ClientSession::Inside::fail_later(std::uint32_t permit, std::error_code error) {
    Request& request = requests[permit];
    RTRS_ASSERT(request.state == RequestState::held);
    request.state = RequestState::failing;
    request.error = error.value();
    request.error_category = &error.category();
    --held;
    failures.push_back(permit);
    failure_timer.arm(environment.clock.now());
}

void ClientSession::Inside::fail_held(std::error_code error) {
    for (std::uint32_t id = 0; id + 1 < geometry.queue_depth && held > 0; ++id) {
        if (requests[id].state == RequestState::held) fail_later(id, error);
    }
}

void ClientSession::Inside::report_failures() {
    std::vector<std::uint32_t> now_failing;
    now_failing.swap(failures);
    for (const std::uint32_t permit : now_failing) {
        Request& request = requests[permit];
        RTRS_ASSERT(request.state == RequestState::failing);
        request.state = RequestState::free;
        request.responded(request.context, Permit(self, PermitId{permit}),
                          std::error_code(request.error, *request.error_category));
    }
    // One that is still posted somewhere is reported when that path has drained.
    if (user_path == no_path && (user_failing || closing || !link_up)) {
        std::deque<UserRequest> failed;
        failed.swap(users);
        user_failing = false;
        const std::error_code error =
            closing ? make_error_code(Error::closed) : make_error_code(Error::path_lost);
        for (const UserRequest& user : failed) user.responded(user.context, error, {});
        send_next_user();
        announce_link_if_ready();
    }
    finish_close_if_done();
}

void ClientSession::Inside::put(PermitId id) {
    RTRS_ASSERT(requests[static_cast<std::uint32_t>(id)].state == RequestState::free);
    pool.put(id);
    if (pool.waiting() && !waiter_timer.armed()) waiter_timer.arm(environment.clock.now());
}

void ClientSession::Inside::serve_waiters() {
    while (PermitWaiter* waiter = pool.next_served()) {
        for (Permit& permit : waiter->permits) permit = Permit(self, pool.take());
        waiter->granted(*waiter);
    }
}

void ClientSession::Inside::send_next_user() {
    if (users.empty() || user_path != no_path || user_failing) return;
    const std::uint16_t path = link_up ? choose_path() : no_path;
    if (path == no_path) {
        failure_timer.arm(environment.clock.now());
        return;
    }
    const UserRequest& user = users.front();
    const std::uint32_t permit = user_permit();
    std::memcpy(header(permit), user.message.data(), user.message.size());
    user_path = path;
    ClientPath& on = *paths[path];
    on.post({.permit = permit,
             .direction = user.direction,
             .payload_bytes = user.response_bytes,
             .message_bytes = static_cast<std::uint32_t>(user.message.size()),
             .payload = {control_memory.data(), 0},
             .target = on.memory().control->remote(0, user.response_bytes),
             .header = header(permit),
             .connection = 0});
}

void ClientSession::Inside::user_answered(int error) {
    const UserRequest user = std::move(users.front());
    users.pop_front();
    user_path = no_path;
    user.responded(user.context, from_errno(error),
                   {control_memory.data(), error == 0 ? user.response_bytes : 0});
    send_next_user();
}

void ClientSession::Inside::close() {
    if (closing) return;
    closing = true;
    hold_timer.disarm();
    // First of all: it keeps on_closed() out of this call.
    failure_timer.arm(environment.clock.now());
    if (!opened) return;
    trace(TraceLevel::info, "closing");
    for (const auto& path : paths) path->close();
    fail_held(Error::closed);
}

void ClientSession::Inside::finish_close_if_done() {
    if (!closing || closed || !failures.empty() || in_flight > 0 || held > 0) return;
    if (!std::ranges::all_of(paths, [](const auto& path) { return path->closed(); })) return;
    if (failure_timer.armed() || !users.empty()) {
        failure_timer.arm(environment.clock.now());
        return;
    }
    closed = true;
    reason = "closed";
    handler.on_closed();
}

// --- The public face.

Permit::Permit(Permit&& other) noexcept
    : session_(std::exchange(other.session_, nullptr)), id_(other.id_) {}

Permit& Permit::operator=(Permit&& other) noexcept {
    if (this != &other) {
        if (session_ != nullptr) session_->inside_->put(id_);
        session_ = std::exchange(other.session_, nullptr);
        id_ = other.id_;
    }
    return *this;
}

Permit::~Permit() {
    if (session_ != nullptr) session_->inside_->put(id_);
}

MutableBytes Permit::payload() const noexcept {
    RTRS_ASSERT(session_ != nullptr);
    const auto& inside = *session_->inside_;
    return {inside.payload_memory.data() + static_cast<std::size_t>(id_) * inside.payload_stride,
            inside.geometry.io_bytes_max};
}

ClientSession::ClientSession(SessionEnvironment environment, ClientSessionOptions options,
                             ClientSessionHandler& handler)
    : inside_(std::make_unique<Inside>(*this, environment, std::move(options), handler)) {}

ClientSession::~ClientSession() {
    RTRS_ASSERT(!inside_->opened || inside_->closed);
    RTRS_ASSERT(inside_->pool.free() == inside_->pool.total());
}

std::error_code ClientSession::open() { return inside_->open(); }
void ClientSession::close() { inside_->close(); }
bool ClientSession::link_up() const noexcept { return inside_->link_up; }
std::uint32_t ClientSession::queue_depth() const noexcept { return inside_->geometry.queue_depth; }
std::uint32_t ClientSession::max_io_bytes() const noexcept {
    return inside_->geometry.io_bytes_max;
}
std::uint32_t ClientSession::permits_max() const noexcept { return inside_->pool.total(); }

std::optional<Permit> ClientSession::try_take() {
    if (!inside_->pool.can_take(1)) return std::nullopt;
    return Permit(*this, inside_->pool.take());
}

bool ClientSession::try_take(std::span<Permit> permits) {
    if (!inside_->pool.can_take(static_cast<std::uint32_t>(permits.size()))) return false;
    for (Permit& permit : permits) permit = Permit(*this, inside_->pool.take());
    return true;
}

bool ClientSession::take_or_wait(PermitWaiter& waiter) {
    RTRS_ASSERT(waiter.count >= 1 && waiter.permits.size() == waiter.count);
    RTRS_ASSERT(waiter.count <= permits_max());
    if (try_take(waiter.permits)) return true;
    inside_->pool.wait(waiter);
    return false;
}

void ClientSession::stop_waiting(PermitWaiter& waiter) noexcept {
    inside_->pool.stop_waiting(waiter);
    // The next in line may need less.
    if (inside_->pool.waiting()) inside_->waiter_timer.arm(inside_->environment.clock.now());
}

void ClientSession::submit(Permit permit, const ClientRequest& request) {
    RTRS_ASSERT(permit.session_ == this);
    permit.session_ = nullptr;  // the request has it now
    inside_->submit(static_cast<std::uint32_t>(permit.id_), request);
}

void ClientSession::submit_user(Direction direction, Bytes message, std::uint32_t response_bytes,
                                UserResponded responded, void* context) {
    RTRS_ASSERT(message.size() <= user_message_bytes_max && response_bytes <= control_bytes);
    inside_->users.push_back(
        {direction, {message.begin(), message.end()}, response_bytes, responded, context});
    if (inside_->closing) {
        inside_->failure_timer.arm(inside_->environment.clock.now());
        return;
    }
    inside_->send_next_user();
}

bool ClientSession::held(PermitId id) const noexcept {
    return inside_->requests[static_cast<std::uint32_t>(id)].state == RequestState::held;
}

MutableBytes ClientSession::message(PermitId id) noexcept {
    const auto permit = static_cast<std::uint32_t>(id);
    return {inside_->header(permit), inside_->requests[permit].message_bytes};
}

void ClientSession::resume(PermitId id) {
    const auto permit = static_cast<std::uint32_t>(id);
    Request& request = inside_->requests[permit];
    RTRS_ASSERT(request.state == RequestState::held);
    request.owner_decides = !inside_->link_up;
    // Not before the path of the first attempt is back.
    const bool fenced = request.path != no_path && !inside_->paths[request.path]->connected();
    if (!request.owner_decides && !fenced) {
        request.path = no_path;
        inside_->send_or_hold(permit);
    }
}

void ClientSession::fail(PermitId id, std::error_code error) {
    inside_->fail_later(static_cast<std::uint32_t>(id), error);
}

const ClientSessionOptions& ClientSession::options() const noexcept { return inside_->options; }

ClientSessionStatus ClientSession::status() const {
    ClientSessionStatus status{.link_up = link_up(),
                               .since = inside_->since,
                               .reason = inside_->reason,
                               .queue_depth = queue_depth(),
                               .max_io_bytes = max_io_bytes(),
                               .permits_free = inside_->pool.free(),
                               .in_flight = inside_->in_flight,
                               .held = inside_->held,
                               .paths = {}};
    for (const auto& path : inside_->paths) status.paths.push_back(path->status());
    return status;
}

}  // namespace rtrs
