#include "rnbd-client/kernel_nbd/kernel_device.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

using rtrs::TraceLevel;
using Use = KernelNbd::Use;

constexpr std::string_view subsystem = "rnbd.kernel";
// How long the kernel may take to let go when it is cut off.
constexpr rtrs::Duration cut_time = std::chrono::seconds(5);
// How long it may take for answers out of a socket that is closed here already, and how often that
// is looked at.
constexpr rtrs::Duration last_answers_time = std::chrono::seconds(1);
constexpr rtrs::Duration last_answers_poll = std::chrono::milliseconds(20);
// The kernel is no stranger who has to hurry: only a broken one would reach these.
constexpr NbdConnectionOptions connection_options{.payload_timeout = std::chrono::hours(1),
                                                  .send_timeout = std::chrono::hours(1)};

void close_all(std::vector<int>& sockets) {
    for (const int fd : sockets) ::close(fd);
    sockets.clear();
}

constexpr const char* no_thread = "there is no thread to call the kernel from";
constexpr const char* not_asked = "the kernel could not be asked whether it is used";

}  // namespace

// An attempt to attach, until what came of it is served. One that is dropped before that, since
// nobody wants it any more or is there to hear of it, leaves nothing behind: the kernel would keep
// a device whose I/O nobody answers. THREAD: any, one after the other.
class KernelDevice::Attempt {
  public:
    Attempt(std::shared_ptr<KernelNbd> kernel, KernelBinding wanted)
        : kernel_(std::move(kernel)), wanted_(std::move(wanted)) {}
    ~Attempt() {
        close_all(ours_);
        close_all(theirs_);
        // It may block. No thread to be had: the next attempt takes it over.
        if (result_)
            KernelCall::leave([kernel = kernel_, at = result_->index] { (void)kernel->cut(at); });
    }
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;

    std::error_code open_sockets(std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) {
            int pair[2];
            if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
                return rtrs::from_errno(errno);
            }
            ours_.push_back(pair[0]);
            theirs_.push_back(pair[1]);
        }
        return {};
    }
    void connect() {
        result_ = kernel_->attach(wanted_, theirs_);
        close_all(theirs_);
    }

    const KernelBinding& wanted() const noexcept { return wanted_; }
    std::string error() const { return result_ ? std::string() : result_.error(); }
    bool succeeded() const noexcept { return result_.has_value(); }
    // Once, ASSUMES: succeeded(). What is served is the caller's, to be detached by it.
    KernelNbd::Attached take_attached() { return *std::exchange(result_, std::unexpected("")); }
    std::vector<int> take_sockets() { return std::exchange(ours_, {}); }

  private:
    const std::shared_ptr<KernelNbd> kernel_;
    const KernelBinding wanted_;
    std::vector<int> ours_, theirs_;
    std::expected<KernelNbd::Attached, std::string> result_ = std::unexpected("");
};

const char* to_string(KernelDevice::State state) noexcept {
    switch (state) {
        case KernelDevice::State::waiting:
            return "waiting";
        case KernelDevice::State::attaching:
            return "attaching";
        case KernelDevice::State::attached:
            return "attached";
        case KernelDevice::State::failed:
            return "failed";
        case KernelDevice::State::detaching:
            return "detaching";
        case KernelDevice::State::detached:
            return "detached";
    }
    return "?";
}

KernelDevice::KernelDevice(NbdConnection::Environment environment,
                           std::shared_ptr<KernelNbd> kernel, Device& device,
                           KernelDeviceOptions options, Handler& handler)
    : environment_(environment),
      kernel_(std::move(kernel)),
      device_(device),
      options_(std::move(options)),
      handler_(handler),
      exports_({&device}),
      since_(environment.reactor.now()),
      pause_(options_.retry_min),
      call_(environment.reactor),
      cut_call_(environment.reactor),
      deadline_(environment.reactor, this, rtrs::member_call<&KernelDevice::on_deadline>),
      retry_(environment.reactor, this, rtrs::member_call<&KernelDevice::retry>) {}

KernelDevice::~KernelDevice() { RTRS_ASSERT(connections_.empty()); }

std::string KernelDevice::path() const {
    return index_ ? fmt::format("/dev/nbd{}", *index_) : std::string();
}

std::string KernelDevice::use() const { return index_ ? kernel_->use_of(*index_) : std::string(); }

void KernelDevice::set_state(State state, std::string reason) {
    // A refusal that repeats is no news.
    const bool news = reason != reason_ || (state != state_ && state != State::failed);
    if (state != state_) since_ = environment_.reactor.now();
    state_ = state;
    reason_ = std::move(reason);
    if (!news || state == State::attaching) return;
    std::string text = to_string(state);
    if (index_) text += " as " + path();
    if (!reason_.empty()) text += ": " + reason_;
    environment_.tracer.trace(reason_.empty() ? TraceLevel::info : TraceLevel::warning, subsystem,
                              device_.name(), text);
}

bool KernelDevice::ready() const noexcept { return device_.describe().unavailable.empty(); }

KernelBinding KernelDevice::binding() const {
    const nbd::ExportDescription description = device_.describe();
    return {.identifier = options_.identifier,
            .index = options_.index,
            .block_bytes = std::max(512u, description.block_sizes.minimum_bytes),
            .size_bytes = description.size_bytes,
            .request_bytes_max = description.block_sizes.maximum_bytes,
            .flags = description.transmission_flags,
            .takes_over = options_.takes_over || was_attached_};
}

void KernelDevice::update() {
    if (state_ == State::waiting && !stopping_ && ready()) attach();
    resize_if_needed();
}

void KernelDevice::retry() {
    if (state_ == State::attached) return resize_if_needed();
    if (state_ == State::detaching && !call_.running() && !let_go_) return detach();
    if (left_) return end_if_done();
    if ((state_ != State::failed && state_ != State::waiting) || stopping_) return;
    // update() goes on.
    if (!ready()) return set_state(State::waiting, reason_);
    attach();
}

// The deadline may be that of cut() by now.
void KernelDevice::call_ended() {
    if (!cut_call_.running() && !let_go_) deadline_.disarm();
}

// False: no thread can be had.
bool KernelDevice::run(std::function<KernelCall::Report()> work) {
    deadline_.arm(environment_.reactor.now() + options_.deadline);
    return call_.start(std::move(work));
}

void KernelDevice::attach() {
    // A call or connections of an attempt before may still have to end.
    if (call_.running() || !connections_.empty()) {
        return retry_.arm(environment_.reactor.now() + pause_);
    }
    const auto attempt = std::make_shared<Attempt>(kernel_, binding());
    if (const auto error = attempt->open_sockets(options_.connections)) {
        return failed("sockets: " + error.message());
    }
    // The reason of an attempt before stays until this one has ended.
    set_state(State::attaching, reason_);
    kernel_size_bytes_ = attempt->wanted().size_bytes;
    device_.set_kernel_blocks(attempt->wanted().block_bytes);
    const bool runs = run([this, attempt]() -> KernelCall::Report {
        attempt->connect();
        return [this, attempt] { connected(*attempt); };
    });
    if (!runs) attached(std::unexpected(no_thread));
}

// The kernel has the sockets, or not.
void KernelDevice::connected(Attempt& attempt) {
    // Given up meanwhile: what the kernel made of it goes with the attempt.
    if (let_go_) return;
    if (!attempt.succeeded()) return attached(std::unexpected(attempt.error()));
    if (!ready()) return attached(std::unexpected("the volume was closed meanwhile"));
    const KernelNbd::Attached made = attempt.take_attached();
    index_ = made.index;
    device_.set_kernel_blocks(made.block_bytes);
    // udev reads from the device already, and what is settled waits for that.
    serve(attempt.take_sockets());
    const bool runs = run([this, kernel = kernel_, wanted = attempt.wanted(),
                           index = *index_]() -> KernelCall::Report {
        auto result = kernel->settle(wanted, index);
        return [this, result] {
            if (!let_go_) attached(result);
        };
    });
    if (!runs) attached(std::unexpected(no_thread));
}

void KernelDevice::attached(std::expected<void, std::string> result) {
    call_ended();
    if (!result) {
        abort_connections("it could not be attached");
        return failed(std::move(result.error()));
    }
    pause_ = options_.retry_min;
    was_attached_ = true;
    set_state(State::attached, {});
    go_on();
}

// Attached, and nothing is asked of the kernel: whatever has happened meanwhile was put off.
void KernelDevice::go_on() {
    if (connections_.empty()) return failed("somebody has detached " + path());
    if (stopping_) return detach();
    resize_if_needed();
}

void KernelDevice::abort_connections(std::string_view why) {
    for (const auto& connection : connections_) connection->abort(why);
}

void KernelDevice::serve(const std::vector<int>& sockets) {
    NbdConnection::Owner& self = *this;
    rtrs::Reactor& reactor = environment_.reactor;
    for (std::size_t i = 0; i < sockets.size(); ++i) {
        const NbdConnection::Environment environment{
            reactor.member(static_cast<std::uint32_t>(i % reactor.members())), environment_.tracer};
        connections_.push_back(std::make_unique<NbdConnection>(
            environment,
            NbdConnection::Socket{sockets[i], NbdTransport::unix_socket,
                                  fmt::format("{}#{}", path(), i)},
            exports_, connection_options, self));
        connections_.back()->start_chosen(0);
    }
}

void KernelDevice::failed(std::string reason) {
    index_.reset();
    device_.set_kernel_blocks(0);
    set_state(State::failed, std::move(reason));
    if (stopping_) {
        let_go_ = true;
        return end_if_done();
    }
    retry_.arm(environment_.reactor.now() + pause_);
    pause_ = std::min(pause_ * 2, options_.retry_max);
}

void KernelDevice::resize_if_needed() {
    if (state_ != State::attached || stopping_ || call_.running() || !ready()) return;
    const KernelBinding wanted = binding();
    if (wanted.size_bytes == kernel_size_bytes_) return;
    const std::uint64_t size_before = std::exchange(kernel_size_bytes_, wanted.size_bytes);
    const bool runs =
        run([this, kernel = kernel_, wanted, size_before, index = *index_]() -> KernelCall::Report {
            auto result = kernel->resize(wanted, index);
            return [this, result, size_before] {
                call_ended();
                if (state_ != State::attached) return;
                set_state(State::attached, result ? std::string() : result.error());
                if (result || stopping_) return go_on();
                kernel_size_bytes_ = size_before;
                retry_.arm(environment_.reactor.now() + options_.retry_max);
            };
        });
    if (runs) return;
    deadline_.disarm();
    kernel_size_bytes_ = size_before;
    retry_.arm(environment_.reactor.now() + options_.retry_max);
}

void KernelDevice::stop(Use use) {
    const bool first = !stopping_;
    // The end of the daemon is not taken back by who would have it stay if it is used.
    stopping_ = std::max(stopping_.value_or(use), use);
    retry_.disarm();
    // Of what came before a failure nothing is waited for.
    const bool waits = state_ != State::failed && state_ != State::waiting;
    if (call_.running() && waits) return;
    if (state_ == State::attached || state_ == State::detaching) return detach();
    if (!first) return;
    let_go_ = true;
    end_if_done();
}

void KernelDevice::detach() {
    retry_.disarm();
    // What has begun to cut it off ends it.
    if (let_go_ || cut_call_.running()) return;
    set_state(State::detaching, {});
    const bool runs =
        run([this, kernel = kernel_, index = *index_, use = *stopping_]() -> KernelCall::Report {
            auto result = kernel->detach(index, use);
            return [this, result] { detach_ended(result); };
        });
    if (runs) return;
    deadline_.disarm();
    set_state(State::detaching, no_thread);
    retry_.arm(environment_.reactor.now() + pause_);
    pause_ = std::min(pause_ * 2, options_.retry_max);
}

void KernelDevice::detach_ended(std::expected<KernelNbd::Detached, std::string> result) {
    call_ended();
    // What has begun to cut it off, or has done so, ends it.
    if (let_go_ || cut_call_.running()) return;
    if (result == KernelNbd::Detached::used && stopping_ == Use::refuse) return stay({});
    if (result == KernelNbd::Detached::used && stopping_ == Use::ignore) return detach();
    if (result == KernelNbd::Detached::used) return leave("it is used");
    if (!result) {
        loss_ = result.error();
        set_state(State::detaching, std::move(result.error()));
    }
    let_go();
}

void KernelDevice::stay(std::string reason) {
    retry_.disarm();
    stopping_.reset();
    set_state(state_ == State::detaching ? State::attached : state_, std::move(reason));
    pause_ = options_.retry_min;
    handler_.on_kernel_used(*this);
    if (state_ != State::attached || call_.running()) return;
    set_state(State::attached, {});
    go_on();
}

void KernelDevice::leave(std::string_view why) {
    left_ = true;
    set_state(State::detaching,
              fmt::format("{}: the kernel keeps it; its I/O fails if no rnbd-client serves it "
                          "again within {} s",
                          why, orphan_seconds));
    let_go();
}

void KernelDevice::let_go() {
    retry_.disarm();
    let_go_ = true;
    for (const auto& connection : connections_) connection->finish();
    end_if_done();
}

void KernelDevice::cut() {
    if (state_ == State::detached || !stopping_) return;
    // One that was left to the kernel has requests that nobody else can answer.
    if (!index_ || (let_go_ && !left_) || cut_call_.running()) return give_up();
    // Whether it is used the kernel was not asked: there was no thread, or something else hangs.
    // What may be mounted is cut off by force alone.
    const bool asked = left_ || (state_ == State::detaching && call_.running());
    if (!asked && stopping_ == Use::refuse) return stay(not_asked);
    if (!asked && stopping_ == Use::leave) return leave(not_asked);
    retry_.disarm();
    note_cut();
    cut_ = true;
    deadline_.arm(environment_.reactor.now() + cut_time);
    const bool runs =
        cut_call_.start([this, kernel = kernel_, index = *index_]() -> KernelCall::Report {
            auto result = kernel->cut(index);
            // What flushes or detaches returns now, too; else the deadline ends the wait.
            return [this, result] {
                if (!result) set_state(state_, result.error());
                let_go();
            };
        });
    if (!runs) give_up();
}

void KernelDevice::on_deadline() {
    const std::string text = "the kernel does not answer";
    if (stopping_ && (cut_call_.running() || let_go_)) return give_up();
    set_state(state_, text);
}

// Nobody hears any more what becomes of its flush, or of what its users do.
void KernelDevice::note_cut() {
    if (!index_ || !loss_.empty()) return;
    if (left_) loss_ = path() + " was cut off while it was used";
    if (!let_go_) loss_ = path() + " was cut off before it was flushed";
}

// Whatever the kernel does: our side ends.
void KernelDevice::give_up() {
    note_cut();
    let_go_ = true;
    abort_connections("the kernel does not let go");
    end_if_done();
}

void KernelDevice::on_connection_closed(NbdConnection& connection) {
    std::erase_if(connections_, [&](const auto& one) { return one.get() == &connection; });
    if (!connections_.empty()) return;
    // The number may be another's from now on.
    const bool unasked = state_ == State::detaching && !call_.running() && !cut_call_.running();
    if (unasked && !let_go_) {
        loss_ = path() + " was detached by somebody else before it was flushed";
        return let_go();
    }
    if (stopping_) return end_if_done();
    if (state_ == State::attached) failed("somebody has detached " + path());
}

// What the kernel had sent, and nobody here has read, would wait for ever, for a next process, too:
// it fails. True: later.
bool KernelDevice::awaits_last_answers() {
    if (!left_ || cut_ || !kernel_->awaits_answers(*index_)) return false;
    const rtrs::Instant now = environment_.reactor.now();
    if (!last_answers_until_) last_answers_until_ = now + last_answers_time;
    if (now < *last_answers_until_) {
        retry_.arm(now + last_answers_poll);
    } else {
        set_state(State::detaching, "it is used, and requests are under way that nobody answers");
        cut();
    }
    return true;
}

void KernelDevice::end_if_done() {
    if (!let_go_ || !connections_.empty() || state_ == State::detached) return;
    if (awaits_last_answers()) return;
    deadline_.disarm();
    retry_.disarm();
    set_state(State::detached, {});
    index_.reset();
    device_.set_kernel_blocks(0);
    handler_.on_kernel_detached(*this);
}

}  // namespace rnbd
