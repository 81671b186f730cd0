#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "rnbd-server/storage/file_storage.h"
#include "rnbd-server/storage/file_storage_inside.h"
#include "rtrs/base/error.h"

namespace rnbd {

using file_storage::no_thread_error;
using rtrs::from_errno;

void FileStorage::extents(ExtentsRequest& request) {
    // Where others have cut it there is no hole, however long it is by now: reads fail.
    if (request.offset + request.bytes > medium_.cut_at()) {
        return request.completed(request, from_errno(EIO));
    }
    // Not by this thread: it may have to wait for a long fallocate(2) of the same file.
    const auto error = std::make_shared<std::error_code>();
    const bool runs = run_elsewhere([this, &request, error] { *error = find_extents(request); },
                                    [this, &request, error] {
                                        --in_flight_;
                                        request.completed(request, *error);
                                    });
    if (!runs) return request.completed(request, from_errno(no_thread_error));
    ++in_flight_;
}

// On a helper thread: of what others change, nothing is looked at.
std::error_code FileStorage::find_extents(ExtentsRequest& request) const {
    struct stat status{};
    if (::fstat(medium_.fd(), &status) != 0) return from_errno(errno);
    const std::uint64_t end = request.offset + request.bytes;
    // Beyond the end there is neither data nor a hole: reads fail.
    if (static_cast<std::uint64_t>(status.st_size) < end) return from_errno(EIO);

    std::vector<StorageExtent>& found = request.found;
    for (std::uint64_t at = request.offset; at < end;) {
        const std::expected<StorageExtent, std::error_code> extent = extent_at(at, end);
        if (!extent) return extent.error();
        at += extent->bytes;
        if (!found.empty() && found.back().hole == extent->hole) {
            found.back().bytes += extent->bytes;
        } else if (found.size() == request.extents_max) {
            break;
        } else {
            found.push_back(*extent);
        }
    }
    return {};
}

// The hole or data that starts at `at`, in whole logical blocks: a block that is partly data is
// data.
std::expected<StorageExtent, std::error_code> FileStorage::extent_at(std::uint64_t at,
                                                                     std::uint64_t end) const {
    const std::uint64_t block = geometry().logical_block_bytes;
    const off_t data = ::lseek(medium_.fd(), static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno != ENXIO) return std::unexpected(from_errno(errno));
    const std::uint64_t data_start =
        data < 0 ? end : std::min(static_cast<std::uint64_t>(data) / block * block, end);
    if (data_start > at) return StorageExtent{.bytes = data_start - at, .hole = true, .zero = true};

    const off_t hole = ::lseek(medium_.fd(), data, SEEK_HOLE);
    if (hole < 0) return std::unexpected(from_errno(errno));
    // What was data a moment ago may be a hole by now: then one block of it is told as data.
    const std::uint64_t data_end =
        std::clamp((static_cast<std::uint64_t>(hole) + block - 1) / block * block, at + block, end);
    return StorageExtent{.bytes = data_end - at};
}

}  // namespace rnbd
