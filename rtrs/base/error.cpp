#include "rtrs/base/error.h"

#include <cerrno>
#include <string>

namespace rtrs {
namespace {

struct Row {
    Error error;
    const char* text;
    int as_errno;
};

constexpr Row table[] = {
    {Error::path_lost, "path lost before the answer", ECONNABORTED},
    {Error::no_path, "no path to the server", ECONNABORTED},
    {Error::protocol, "peer broke the protocol", EPROTO},
    {Error::rejected, "peer refused the connection", ECONNREFUSED},
    {Error::timed_out, "peer did not answer in time", ETIMEDOUT},
    {Error::closed, "closed", ESHUTDOWN},
    {Error::remote_access, "remote memory access refused", EREMOTEIO},
    {Error::checksum, "checksum mismatch", EBADMSG},
    {Error::closed_by_peer, "closed by the peer", ECONNRESET},
    {Error::name_in_use, "the session's name is in use by another client there", EBUSY},
    {Error::former_session, "the server waits for what this client's former session has in flight",
     EBUSY},
};

const Row* find(int value) noexcept {
    for (const Row& row : table) {
        if (static_cast<int>(row.error) == value) return &row;
    }
    return nullptr;
}

class Category final : public std::error_category {
  public:
    const char* name() const noexcept override { return "rtrs"; }
    std::string message(int value) const override {
        const Row* row = find(value);
        return row != nullptr ? row->text : "unknown rtrs error " + std::to_string(value);
    }
};

constexpr int wire_errno_max = 511;

}  // namespace

const std::error_category& error_category() noexcept {
    static const Category category;
    return category;
}

std::error_code make_error_code(Error error) noexcept {
    return std::error_code(static_cast<int>(error), error_category());
}

int to_errno(std::error_code error) noexcept {
    if (!error) return 0;
    if (error.category() == error_category()) {
        const Row* row = find(error.value());
        return row != nullptr ? row->as_errno : EIO;
    }
    const int value = error.value() < 0 ? -error.value() : error.value();
    return value > 0 && value <= wire_errno_max ? value : EIO;
}

}  // namespace rtrs
