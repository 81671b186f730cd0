#include "rnbd-server/writer_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <sstream>
#include <utility>

#include "daemon/log.h"
#include "rnbd-server/storage/state_file.h"

namespace rnbd {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view first_line = "rnbd-server writers 1";
constexpr std::string_view known_word = "known";
constexpr std::string_view out_word = "out";
// A machine that starts opens a thousand volumes at once: one write of the file for all of them.
constexpr rtrs::Duration save_delay = 500ms;

}  // namespace

// Written by two threads: what is older must not take the place of what is newer.
struct WriterBook::File {
    std::error_code write(std::uint64_t its_version, const std::string& text) {
        const std::lock_guard lock(mutex);
        if (its_version <= written) return {};
        const std::error_code error = write_state_file(path, text);
        if (!error) written = its_version;
        return error;
    }

    std::string path;
    WriterBook* book = nullptr;  // the reactor's; null: it is gone
    std::uint64_t version = 0;   // the reactor's
    std::mutex mutex;
    std::uint64_t written = 0;  // guarded by mutex
};

WriterBook::WriterBook(rtrs::Reactor& reactor, std::string path)
    : reactor_(reactor),
      path_(std::move(path)),
      timer_(reactor, this,
             [](void* self) {
                 auto& book = *static_cast<WriterBook*>(self);
                 book.wanted_ = std::max(book.wanted_, Wanted::soon);
                 if (book.running_ == Wanted::no) book.start();
             }),
      file_(std::make_shared<File>()) {
    file_->path = path_;
    file_->book = this;
}

WriterBook::~WriterBook() { file_->book = nullptr; }

std::error_code WriterBook::load() {
    if (path_.empty()) return {};
    const auto text = read_state_file(path_);
    if (!text) {
        return text.error() == std::errc::no_such_file_or_directory ? std::error_code{}
                                                                    : text.error();
    }
    std::istringstream file(*text);
    std::string line;
    if (!std::getline(file, line) || line != first_line) return {};
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string state;
        Writers::Id id = 0;
        std::string name;
        words >> state >> std::hex >> id >> std::ws;
        if (!std::getline(words, name) || id == 0) continue;
        Writers& writers = exports_[name];
        if (state == known_word && writers.known().size() < Writers::known_max) {
            writers.restore_known(id);
        } else if (state == out_word) {
            writers.restore_out(id);
        }
    }
    return {};
}

std::string WriterBook::text() const {
    std::string text = fmt::format("{}\n", first_line);
    for (const auto& [name, writers] : exports_) {
        for (const auto& one : writers.known()) {
            text += fmt::format("{} {:016x} {}\n", known_word, one.id, name);
        }
        for (const Writers::Id id : writers.out()) {
            text += fmt::format("{} {:016x} {}\n", out_word, id, name);
        }
    }
    return text;
}

void WriterBook::changed() {
    if (path_.empty() || timer_.armed()) return;
    timer_.arm(reactor_.now() + save_delay);
}

void WriterBook::save_now() {
    if (path_.empty()) return;
    timer_.disarm();
    wanted_ = Wanted::now;
    if (running_ == Wanted::no) start();
}

void WriterBook::start() {
    running_ = std::exchange(wanted_, Wanted::no);
    const auto error = std::make_shared<std::error_code>();
    reactor_.offload([file = file_, error, version = ++file_->version,
                      text = text()] { *error = file->write(version, text); },
                     [file = file_, error] {
                         if (file->book != nullptr) file->book->ended(*error);
                     });
}

void WriterBook::ended(std::error_code error) {
    const bool awaited = saving();
    running_ = Wanted::no;
    if (error) {
        logger("rnbd.server")
            .error(
                "{}: {}; a server that is started again may let in a client that was away while "
                "another one wrote",
                path_, error.message());
    }
    if (wanted_ != Wanted::no) start();
    if (awaited && !saving() && saved_) saved_();
}

std::error_code WriterBook::save() {
    if (path_.empty()) return {};
    timer_.disarm();
    return file_->write(++file_->version, text());
}

}  // namespace rnbd
