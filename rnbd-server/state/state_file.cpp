#include "rnbd-server/state/state_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "rnbd-server/storage/synchronize_folder.h"
#include "rtrs/base/descriptor.h"
#include "rtrs/base/detached_call.h"
#include "rtrs/base/error.h"
#include "rtrs/base/instant.h"
#include "rtrs/base/whole_file.h"

namespace rnbd {
namespace {

using namespace std::chrono_literals;

// A machine that starts opens a thousand volumes at once: one write of the file for all of them.
constexpr rtrs::Duration write_delay = 500ms;
constexpr rtrs::Duration retry_delay = 5s;
constexpr rtrs::Duration last_timeout = 2s;

std::error_code last_error() { return rtrs::from_errno(errno); }

// The content of a descriptor, durable; closes it.
std::error_code put(int fd, std::string_view text) {
    std::error_code error = rtrs::write_whole(fd, text);
    if (!error && ::fsync(fd) != 0) error = last_error();
    if (::close(fd) != 0 && !error) error = last_error();
    return error;
}

std::error_code replace(const std::string& path, std::string_view text) {
    const std::string temporary = path + ".new";
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return last_error();
    if (const auto error = put(fd, text)) return error;
    if (::rename(temporary.c_str(), path.c_str()) != 0) return last_error();
    return synchronize_folder(path);
}

}  // namespace

// Written by several threads: what is older must not take the place of what is newer.
struct StateFile::File {
    std::error_code write(Ticket its_version, const std::string& text) {
        const std::lock_guard lock(mutex);
        if (its_version <= written) return {};
        const std::error_code error = replace(path, text);
        if (!error) written = its_version;
        return error;
    }

    std::string path;
    StateFile* owner = nullptr;  // the reactor's; null: it is gone
    std::mutex mutex;
    Ticket written = 0;  // guarded by mutex
};

StateFile::StateFile(rtrs::Reactor& reactor, std::string path, std::function<std::string()> text,
                     std::function<void(std::error_code error)> ended)
    : reactor_(reactor),
      path_(std::move(path)),
      text_(std::move(text)),
      ended_(std::move(ended)),
      timer_(reactor, this,
             [](void* self) {
                 auto& file = *static_cast<StateFile*>(self);
                 file.wanted_ = true;
                 if (!file.running_) file.start();
             }),
      file_(std::make_shared<File>()),
      helper_([&reactor](std::function<void()> done) { reactor.post(std::move(done)); }) {
    file_->path = path_;
    file_->owner = this;
}

StateFile::~StateFile() { file_->owner = nullptr; }

std::expected<std::string, std::error_code> StateFile::read() const {
    if (path_.empty()) return std::unexpected(rtrs::from_errno(ENOENT));
    const rtrs::Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return std::unexpected(last_error());
    return rtrs::read_whole(file.get());
}

std::error_code StateFile::write() {
    if (path_.empty()) return {};
    const Ticket version = ++version_;
    return note(version, file_->write(version, text_()));
}

std::error_code StateFile::note(Ticket version, std::error_code error) {
    over_ = std::max(over_, version);
    if (!error) written_ = std::max(written_, version);
    return error;
}

void StateFile::changed() {
    if (path_.empty() || timer_.armed()) return;
    timer_.arm(reactor_.now() + write_delay);
}

StateFile::Ticket StateFile::write_now() {
    if (path_.empty()) return 0;
    timer_.disarm();
    wanted_ = true;
    return running_ ? version_ + 1 : start();
}

StateFile::Ticket StateFile::start() {
    wanted_ = false;
    running_ = true;
    const Ticket version = ++version_;
    const auto error = std::make_shared<std::error_code>();
    const auto work = [file = file_, error, version, text = text_()] {
        *error = file->write(version, text);
    };
    const auto done = [file = file_, error, version] {
        if (file->owner != nullptr) file->owner->has_ended(version, *error);
    };
    if (!helper_.run(work, done)) {
        work();
        reactor_.post(done);
    }
    return version;
}

void StateFile::has_ended(Ticket version, std::error_code error) {
    running_ = false;
    note(version, error);
    if (wanted_) {
        start();
    } else if (error && !timer_.armed()) {
        timer_.arm(reactor_.now() + retry_delay);
    }
    ended_(error);
}

std::error_code StateFile::write_within(rtrs::Duration timeout) {
    if (path_.empty()) return {};
    const Ticket version = ++version_;
    const std::function<std::error_code()> work = [file = file_, version, text = text_()] {
        return file->write(version, text);
    };
    auto call = rtrs::DetachedCall<std::error_code>::start(work, "rnbd-state");
    if (!call) return note(version, work());
    // What goes on is over later, as is what it waits for.
    if (!call->wait_for(timeout)) return rtrs::from_errno(ETIMEDOUT);
    return note(version, call->result());
}

std::error_code StateFile::save() {
    timer_.disarm();
    const std::error_code error = write_within(last_timeout);
    // What is in the way of the last one is not waited for either.
    if (error == std::errc::timed_out) helper_.abandon();
    return error;
}

std::string state_file_path(std::string_view name) {
    const char* const folder = std::getenv("STATE_DIRECTORY");
    if (folder == nullptr || *folder != '/') return "";
    const std::string_view folders(folder);
    return std::string(folders.substr(0, folders.find(':'))) + "/" + std::string(name);
}

}  // namespace rnbd
