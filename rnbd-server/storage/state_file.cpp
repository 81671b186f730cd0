#include "rnbd-server/storage/state_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>

#include "rnbd-server/storage/synchronize_folder.h"
#include "rtrs/base/descriptor.h"
#include "rtrs/base/error.h"
#include "rtrs/base/start_thread.h"

namespace rnbd {
namespace {

std::error_code last_error() { return rtrs::from_errno(errno); }

// The content of a descriptor, durable; closes it.
std::error_code put(int fd, std::string_view text) {
    std::error_code error;
    while (!text.empty() && !error) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written > 0) {
            text.remove_prefix(static_cast<std::size_t>(written));
        } else if (written == 0 || errno != EINTR) {
            error = written == 0 ? rtrs::from_errno(EIO) : last_error();
        }
    }
    if (!error && ::fsync(fd) != 0) error = last_error();
    if (::close(fd) != 0 && !error) error = last_error();
    return error;
}

}  // namespace

std::expected<std::string, std::error_code> read_state_file(const std::string& path) {
    const rtrs::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return std::unexpected(last_error());
    std::string text;
    std::array<char, 4096> piece{};
    std::error_code error;
    for (ssize_t got = 1; got != 0 && !error;) {
        got = ::read(file.get(), piece.data(), piece.size());
        if (got > 0) text.append(piece.data(), static_cast<std::size_t>(got));
        if (got < 0 && errno != EINTR) error = last_error();
    }
    if (error) return std::unexpected(error);
    return text;
}

std::error_code write_state_file(const std::string& path, std::string_view text) {
    const std::string temporary = path + ".new";
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return last_error();
    if (const auto error = put(fd, text)) return error;
    if (::rename(temporary.c_str(), path.c_str()) != 0) return last_error();
    return synchronize_folder(path);
}

std::error_code within(rtrs::Duration patience, std::function<std::error_code()> work) {
    auto ended = std::make_shared<std::promise<std::error_code>>();
    auto result = ended->get_future();
    auto thread =
        rtrs::start_thread([ended, work] { ended->set_value(work()); }, "rnbd-last-write");
    if (!thread) return work();
    thread->detach();
    if (result.wait_for(patience) != std::future_status::ready) return rtrs::from_errno(ETIMEDOUT);
    return result.get();
}

std::string state_file_path(std::string_view name) {
    const char* const folder = std::getenv("STATE_DIRECTORY");
    if (folder == nullptr || *folder != '/') return "";
    const std::string_view folders(folder);
    return std::string(folders.substr(0, folders.find(':'))) + "/" + std::string(name);
}

}  // namespace rnbd
