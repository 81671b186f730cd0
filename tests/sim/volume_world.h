// RemoteSession and two RemoteVolumes against a small RNBD server on simulated hosts, with users
// that check what they read.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "rnbd/remote_volume.h"
#include "tests/sim/session_world.h"

namespace simtest {

using namespace rnbd;

inline constexpr std::uint32_t block = 512;

// A volume's blocks: the first word of each, as they are read and as they are when the machine has
// crashed.
struct Export {
    std::vector<std::uint64_t> words = std::vector<std::uint64_t>(64);
    std::vector<std::uint64_t> durable = words;
    std::uint64_t epoch = 1;
    bool fua = false;
    int refuse = 0;  // errno of OPEN
    std::uint16_t logical_block_bytes = block;
    std::uint64_t sectors = 64;
    std::uint32_t zeroes_sectors_max = 0;
    std::uint64_t writer = 0;     // of the newest OPEN
    std::set<std::uint64_t> out;  // writers that are refused
    MediumId medium{};
    MediumId expected{};  // by the newest OPEN
    bool checks_medium = true;
    bool gone = false;  // its storage
    void lose_cache() {
        words = durable;
        ++epoch;
    }
    std::uint32_t opens = 0;
    std::uint32_t closes = 0;
    std::uint32_t open_now = 0;
};

// Answers what a volume needs, at once or a little later.
class SmallServer final : public ServerHandler {
  public:
    SmallServer(Scene& scene, std::map<std::string, Export>& exports)
        : scene_(scene),
          exports_(exports),
          server({scene.server_host.clock(), scene.world.random(), scene.recorder},
                 scene.options.server, *this) {
        scene.findings.expect(server.listen(scene.server_host.fabric(), "0.0.0.0:1235").has_value(),
                              "cannot listen");
        // Small numbers: the id of one volume today is that of another tomorrow.
        next_id_ = static_cast<std::uint32_t>(scene.world.random().below(2));
    }

    std::error_code on_session_up(ServerSession& session) override {
        service_ = session.messages();
        followed = false;
        if (service_ != nullptr) expect_a_follower();
        return {};
    }
    void on_session_down(ServerSession& session) override {
        for (const auto& [id, name] : open_[&session]) --exports_[name].open_now;
        open_.erase(&session);
    }
    void on_closed() override { closed = true; }
    void on_request(ServerOp& op) override {
        if (delay == Duration{0}) return answer(op);
        const Duration later(
            scene_.world.random().below(static_cast<std::uint64_t>(delay.count())));
        auto& timer = timers_.emplace_back(std::make_unique<Late>(*this, op));
        timer->timer.arm(scene_.world.now() + later);
    }
    // As if an operator had closed the device.
    void forget(const std::string& name) {
        for (auto& [session, devices] : open_) {
            std::erase_if(devices, [&](const auto& one) {
                if (one.second != name) return false;
                --exports_[name].open_now;
                return true;
            });
        }
    }

    // By an operator; who follows the catalog is told.
    void resize(const std::string& name, std::uint64_t sectors) {
        exports_[name].sectors = sectors;
        ++generation_;
        if (!followed) return;
        tell(CatalogTag::event, CatalogEvent{.kind = CatalogEventKind::resized,
                                             .generation = generation_,
                                             .entry = entry(name)});
    }

    // Who follows the catalog is told what became of an export.
    void says(const std::string& name, CatalogEventKind kind) {
        ++generation_;
        tell(CatalogTag::event,
             CatalogEvent{.kind = kind, .generation = generation_, .entry = entry(name)});
    }

    // The storage of this export answers again; what hung is done now, in its order.
    void storage_goes_on() {
        hanging.clear();
        std::deque<ServerOp*> hung;
        hung.swap(hung_);
        for (ServerOp* const op : hung) answer(*op);
    }

    std::size_t hung() const noexcept { return hung_.size(); }

    Duration delay{0};
    std::string hanging;             // the export whose storage answers nothing
    Duration open_answer_delay{0};   // from when it was opened
    Duration write_answer_delay{0};  // from when it was written
    Duration extents_answer_delay{0};
    std::vector<std::uint64_t> extent_lengths;  // what it answers instead of what was asked for
    bool followed = false;
    Feature features = Feature::none;
    bool closed = false;
    std::uint32_t ios = 0;
    // As a kernel's server: a device has the lowest id that is free.
    bool gives_ids_again = false;
    // The client may lose a link that its session here outlives, and open again what is open.
    bool sessions_survive = false;

  private:
    struct Late {
        Late(SmallServer& its_server, ServerOp& its_op)
            : server(its_server),
              op(its_op),
              timer(its_server.scene_.server_host.clock(), this, [](void* self) {
                  auto& late = *static_cast<Late*>(self);
                  late.server.answer(late.op);
              }) {}
        SmallServer& server;
        ServerOp& op;
        Timer timer;
    };

    // What was done, and is answered later.
    struct LateAnswer {
        LateAnswer(Scene& scene, ServerOp& its_op, std::uint32_t its_bytes)
            : op(its_op), bytes(its_bytes), timer(scene.server_host.clock(), this, [](void* self) {
                  auto& late = *static_cast<LateAnswer*>(self);
                  late.op.respond({}, late.bytes);
              }) {}
        ServerOp& op;
        std::uint32_t bytes;
        Timer timer;
    };
    void answer_later(ServerOp& op, std::uint32_t bytes, Duration later) {
        if (later == Duration{0}) return op.respond({}, bytes);
        auto& late = answers_.emplace_back(std::make_unique<LateAnswer>(scene_, op, bytes));
        late->timer.arm(scene_.world.now() + later);
    }

    void expect_a_follower() {
        static_cast<void>(service_->receive(
            {.tag = catalog_tag(CatalogTag::request, 0), .mask = catalog_tag_mask}, 64,
            [](void* self, const ReceivedMessage& message) {
                static_cast<SmallServer*>(self)->asked_for_catalog(message);
            },
            this));
    }
    void asked_for_catalog(const ReceivedMessage& message) {
        if (message.error) return;
        expect_a_follower();
        follower_ = static_cast<std::uint32_t>(message.tag);
        followed = true;
        CatalogPicture picture{.generation = generation_};
        for (const auto& [name, one] : exports_) picture.entries.push_back(entry(name));
        tell(CatalogTag::picture, picture);
    }
    CatalogEntry entry(const std::string& name) const {
        const Export& one = exports_.at(name);
        return {.name = name,
                .size_bytes = one.sectors * block,
                .block_bytes = one.logical_block_bytes,
                .waiting = one.gone};
    }
    template <typename Message>
    void tell(CatalogTag what, const Message& message) {
        MessageBuffer content(message.wire_bytes());
        message.emit(content.bytes());
        static_cast<void>(
            service_->send(catalog_tag(what, follower_), std::move(content), nullptr, nullptr));
    }

    void answer(ServerOp& op) {
        const auto type = request_type(op.message());
        if (!type) return op.respond(from_errno(EINVAL));
        switch (*type) {
            case MessageType::session_info: {
                const auto message = SessionInfoMessage::parse(op.message());
                SessionInfoResponse::to(*message, features).emit(op.data());
                return op.respond({}, SessionInfoResponse::wire_bytes);
            }
            case MessageType::open:
                return open(op);
            case MessageType::close: {
                const auto message = CloseMessage::parse(op.message());
                auto& devices = open_[&op.session()];
                const auto device = devices.find(message->device_id);
                if (device == devices.end()) return op.respond(from_errno(ENOTCONN));
                ++exports_[device->second].closes;
                --exports_[device->second].open_now;
                devices.erase(device);
                return op.respond({});
            }
            case MessageType::io:
                return io(op);
            case MessageType::extents: {
                const auto message = ExtentsMessage::parse(op.message());
                if (!open_[&op.session()].contains(message->device_id)) {
                    return op.respond(from_errno(ENOTCONN));
                }
                auto lengths = extent_lengths;
                if (lengths.empty()) lengths = {message->length};
                std::uint32_t count = 0;
                for (const std::uint64_t length : lengths) {
                    ExtentsResponseView::emit_extent(count++, {.length = length}, op.data());
                }
                ExtentsResponseView::emit_header(count, op.data());
                return answer_later(
                    op, static_cast<std::uint32_t>(ExtentsResponseView::wire_bytes(count)),
                    extents_answer_delay);
            }
            default:
                return op.respond(from_errno(EINVAL));
        }
    }
    void open(ServerOp& op) {
        const auto message = OpenMessage::parse(op.message());
        const auto found = exports_.find(message->device_name);
        if (found == exports_.end()) return op.respond(from_errno(ENOENT));
        Export& one = found->second;
        if (one.gone) return op.respond(from_errno(ENOENT));
        if (one.refuse != 0) return op.respond(from_errno(one.refuse));
        if (one.out.contains(message->writer)) return op.respond(from_errno(ESTALE));
        one.expected = message->medium;
        if (one.checks_medium && message->medium.rules_out(one.medium)) {
            return op.respond(from_errno(EMEDIUMTYPE));
        }
        one.writer = message->writer;
        auto& devices = open_[&op.session()];
        std::uint32_t id = next_id_ % 3;
        const auto known = std::ranges::find(devices, message->device_name,
                                             [](const auto& device) { return device.second; });
        if (known != devices.end()) {
            scene_.findings.expect(sessions_survive, "opened twice in a session");
            id = known->first;
        } else {
            if (gives_ids_again) id = next_id_ = 0;
            while (devices.contains(id)) id = ++next_id_ % 3;
            ++next_id_;
            devices[id] = message->device_name;
            ++found->second.opens;
            ++found->second.open_now;
        }
        OpenResponse{.device_id = id,
                     .sectors = found->second.sectors,
                     .max_hw_sectors = 8,
                     .max_write_zeroes_sectors = found->second.zeroes_sectors_max,
                     .physical_block_bytes = block,
                     .logical_block_bytes = found->second.logical_block_bytes,
                     .fua = found->second.fua,
                     .write_back = true,
                     .epoch = found->second.epoch,
                     .medium = found->second.medium}
            .emit(op.data());
        answer_later(op, OpenResponse::size(features), open_answer_delay);
    }
    void io(ServerOp& op) {
        ++ios;
        const auto message = IoMessage::parse(op.message());
        auto& devices = open_[&op.session()];
        const auto device = devices.find(message->device_id);
        if (device == devices.end()) return op.respond(from_errno(ENOTCONN));
        Export& one = exports_[device->second];
        if (device->second == hanging) return hung_.push_back(&op);
        if (one.gone) return op.respond(from_errno(ENODEV));
        if (message->operation == Operation::flush) {
            // As Linux 6.12 on a device with blocks of 4096 bytes.
            if (message->sector % (4096 / sector_bytes) != 0) return op.respond(from_errno(EIO));
            one.durable = one.words;
            return op.respond({});
        }
        std::uint64_t& word = one.words.at(message->sector % 64);
        if (message->operation == Operation::write) {
            std::memcpy(&word, op.data().data(), sizeof word);
            if (one.fua && has(message->flags, IoFlag::fua)) one.durable[message->sector] = word;
            return answer_later(op, 0, write_answer_delay);
        }
        if (message->operation == Operation::read) {
            std::memcpy(op.data().data(), &word, sizeof word);
            return op.respond({}, block);
        }
        if (message->operation == Operation::write_zeroes) {
            // As a kernel that does not know the operation.
            if (one.zeroes_sectors_max == 0) return op.respond({});
            word = 0;
        }
        op.respond({});
    }

    Scene& scene_;
    std::map<std::string, Export>& exports_;
    std::map<const ServerSession*, std::map<std::uint32_t, std::string>> open_;
    std::deque<std::unique_ptr<Late>> timers_;
    std::deque<std::unique_ptr<LateAnswer>> answers_;
    std::deque<ServerOp*> hung_;
    MessageService* service_ = nullptr;
    std::uint32_t follower_ = 0;
    std::uint64_t generation_ = 0;
    std::uint32_t next_id_ = 0;

  public:
    Server server;
};

// A volume and its user: writes to each block in turn what says volume and count, reads it back.
struct User final : RemoteVolumeHandler {
    User(Scene& its_scene, RemoteSession& session, const std::string& name, std::uint64_t its_mark,
         std::uint64_t writer = 0, const MediumId& medium = {},
         AccessMode access = AccessMode::read_write)
        : scene(its_scene),
          mark(its_mark),
          volume(session, {.name = name, .access = access, .writer = writer, .medium = medium},
                 *this) {}

    void on_volume_changed(RemoteVolume&) override {
        ++changes;
        if (volume.open_error()) ++refusals[volume.open_error()];
    }
    void on_volume_closed(RemoteVolume&) override { closed = true; }

    bool issue(VolumeOperation operation, std::uint32_t at, std::uint32_t blocks = 1) {
        auto permit = volume.session().rtrs().try_take();
        if (!permit) return false;
        const auto id = static_cast<std::uint32_t>(permit->id());
        reading[id] = operation == VolumeOperation::read ? std::optional(at) : std::nullopt;
        if (operation == VolumeOperation::extents) asking.insert(id);
        if (operation == VolumeOperation::write) {
            const std::uint64_t word = mark << 32 | at;
            std::memcpy(permit->payload().data(), &word, sizeof word);
        }
        ++made;
        volume.submit(std::move(*permit),
                      {.operation = operation,
                       .offset = std::uint64_t{at} * block,
                       .bytes = operation == VolumeOperation::flush ? 0 : blocks * block,
                       .responded =
                           [](void* self, Permit answered_permit, std::error_code error) {
                               static_cast<User*>(self)->done(std::move(answered_permit), error);
                           },
                       .context = this});
        return true;
    }
    void done(Permit permit, std::error_code error) {
        ++answered;
        const bool asked = asking.erase(static_cast<std::uint32_t>(permit.id())) > 0;
        if (error) {
            ++errors[error];
        } else if (asked) {
            const auto extents = volume.extents_in(permit);
            if (!extents) {
                ++errors[extents.error()];
            } else {
                scene.findings.expect(extents->at(0).length == block,
                                      "extents that are not what was asked for");
                ++told;
            }
        } else if (const auto at = reading[static_cast<std::uint32_t>(permit.id())]) {
            std::uint64_t word = 0;
            std::memcpy(&word, permit.payload().data(), sizeof word);
            scene.findings.expect(word == (mark << 32 | *at), "a read of another volume's block");
        }
        permit = Permit();
        if (running > 0) {
            --running;
            some();
        }
    }
    void some() {
        Random& random = scene.world.random();
        const auto at = static_cast<std::uint32_t>(random.below(64));
        const auto kind = random.below(5);
        issue(kind < 2   ? VolumeOperation::write
              : kind < 4 ? VolumeOperation::read
                         : VolumeOperation::flush,
              at);
    }
    void run(std::uint64_t count, std::uint32_t depth) {
        running += count;
        for (std::uint32_t i = 0; i < depth; ++i) some();
    }
    bool idle() const { return made == answered; }

    Scene& scene;
    std::uint64_t mark;
    std::map<std::uint32_t, std::optional<std::uint32_t>> reading;
    std::set<std::uint32_t> asking;
    int told = 0;
    std::uint64_t made = 0, answered = 0, running = 0;
    std::map<std::error_code, std::uint64_t> errors;
    std::map<std::error_code, std::uint64_t> refusals;  // of OPEN, as it is told of them
    int changes = 0;
    bool closed = false;
    RemoteVolume volume;
};

struct Volumes : RemoteSessionHandler {
    explicit Volumes(SceneOptions options = quick_options(31)) : scene(options) {
        for (const char* name : {"vol1", "vol2"}) {
            Export& one = exports[name];
            for (std::size_t i = 0; i < one.words.size(); ++i) {
                one.words[i] = (name[3] - '0') * (1ull << 32) | i;
            }
            one.durable = one.words;
        }
    }
    virtual ~Volumes() {
        scene.world.abandon();
        bury(server.release());
        bury(user1.release());
        bury(user2.release());
        bury(session.release());
    }
    void start_server() {
        server = std::make_unique<SmallServer>(scene, exports);
        server->features = features;
    }
    void crash_server(SimHost::CrashSeen seen) {
        scene.server_host.crash(seen);
        bury(server.release());
        for (auto& [name, one] : exports) one.open_now = 0;
    }
    // It goes while user1 has requests at it, and does not come back by itself.
    void lose_server() {
        server->delay = 500us;
        user1->run(0, 7);
        crash_server(SimHost::CrashSeen::by_reset);
        REQUIRE(until([&] { return user1->volume.state() == VolumeState::reopening; }));
    }
    void start_client() {
        ClientSessionOptions options = scene.options.client;
        for (PathAddress& path : options.paths) path.fabric = &scene.client_host.fabric();
        session = std::make_unique<RemoteSession>(
            SessionEnvironment{scene.client_host.clock(), scene.world.random(), scene.recorder},
            options, *this);
        user1 = std::make_unique<User>(scene, *session, "vol1", 1);
        user2 = std::make_unique<User>(scene, *session, "vol2", 2);
        CHECK(!session->open());
    }
    void on_session_closed() override { session_closed = true; }

    bool until(const std::function<bool()>& done, Duration limit = 20s) {
        return scene.world.run_until(done, limit);
    }
    bool opened(Duration limit = 20s) {
        return until(
            [&] {
                return user1->volume.state() == VolumeState::open &&
                       user2->volume.state() == VolumeState::open;
            },
            limit);
    }
    // The first volume, by another user.
    void map_again() {
        user1.reset();
        user1 = std::make_unique<User>(scene, *session, "vol1", 1);
    }
    // A server with these, and both volumes open.
    void begin(Feature with) {
        features = with;
        start_server();
        start_client();
        REQUIRE(opened());
    }
    bool open_at_server(const char* name) { return exports[name].open_now == 1; }
    void good_end() {
        REQUIRE(opened());
        for (User* user : {user1.get(), user2.get()}) user->run(100, 4);
        CHECK(until([&] { return user1->idle() && user2->idle(); }));
        CHECK(user1->errors.empty());
        CHECK(user2->errors.empty());
        CHECK(exports["vol1"].open_now == 1);
        end();
        CHECK(exports["vol1"].open_now == 0);
        CHECK(exports["vol2"].open_now == 0);
    }
    void end() {
        user1->volume.close();
        user2->volume.close();
        CHECK(until([&] { return user1->closed && user2->closed; }));
        CHECK(user1->idle());
        CHECK(user2->idle());
        user1.reset();
        user2.reset();
        session->close();
        CHECK(until([&] { return session_closed; }));
        session.reset();
        if (server) {
            server->server.close();
            CHECK(until([&] { return server->closed; }));
            server.reset();
        }
        for (const std::string& line : scene.findings.lines) FAIL_CHECK(line);
    }

    Scene scene;
    std::map<std::string, Export> exports;
    Feature features = Feature::none;  // of the servers to come
    std::unique_ptr<SmallServer> server;
    std::unique_ptr<RemoteSession> session;
    std::unique_ptr<User> user1, user2;
    bool session_closed = false;
};

}  // namespace simtest
