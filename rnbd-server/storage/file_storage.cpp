#include "rnbd-server/storage/file_storage.h"

#include <cstddef>
#include <type_traits>
#include <utility>

#include "rnbd-server/storage/file_opening.h"
#include "rnbd-server/storage/file_storage_inside.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rnbd {

using file_storage::holds_long;
using rtrs::from_errno;

namespace {

// Written at once by write_zeroes in the plain way.
constexpr std::size_t zeroes_bytes = 1u << 20;

}  // namespace

std::expected<std::unique_ptr<Storage>, StorageError> FileStorage::open(
    rtrs::Reactor& reactor, DeferredCompletions& deferred, const StorageOptions& options,
    StorageOpening& begun) {
    using Attempt = FileOpening::Attempt;
    FileOpening::Opened medium = FileOpening::open(
        options, begun.failed ? Attempt::again : Attempt::first, begun.whom, begun.file);
    begun.failed = !medium;
    if (!medium) return std::unexpected(medium.error());
    auto zeroes = Mapping::make(zeroes_bytes, Mapping::Access::read_only);
    if (!zeroes) return std::unexpected(StorageError{zeroes.error(), options.path + ": no memory"});
    return std::unique_ptr<Storage>(
        new FileStorage(reactor, deferred, std::move(*medium), std::move(*zeroes), options));
}

// A device that has no zeroing of its own is asked for no hole: the kernel refuses that, but only
// when it has dropped what its cache had of the range, acknowledged writes too.
FileStorage::FileStorage(rtrs::Reactor& reactor, DeferredCompletions& deferred, FileMedium medium,
                         Mapping zeroes, const StorageOptions& options)
    : reactor_(reactor),
      medium_(std::move(medium)),
      slots_(reactor.members()),
      zeroes_(std::move(zeroes)),
      io_(options.io),
      use_(options.use),
      can_poll_(medium_.can_be_polled()),
      can_punch_hole_(medium_.kind() == FileMedium::Kind::regular || geometry().fast_zero),
      can_discard_call_(medium_.kind() == FileMedium::Kind::block_device),
      deferred_(deferred) {
    const bool disk = io_ == StorageOptions::Io::direct && !medium_.in_memory();
    if (disk && reactor.prompt_storage()) reserve_.emplace();
    if (medium_.answers_at_once()) return;
    for (std::uint32_t i = 0; i < reactor.members(); ++i) reactor.member(i).expect_slow_files();
}

FileStorage::~FileStorage() {
    RTRS_ASSERT(in_flight_ == 0);
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].slot == rtrs::Reactor::FixedFile::none) continue;
        reactor_.member(i).unregister_file(slots_[i].slot);
    }
    for (const int fd : medium_.let_go_of_slow()) reactor_.close_fd(fd);
}

rtrs::Reactor::File FileStorage::file(rtrs::Reactor& here) {
    Slot& known = slots_[here.number()];
    if (!std::exchange(known.tried, true)) {
        if (const auto slot = here.register_file(medium_.fd())) known.slot = *slot;
    }
    return {medium_.fd(), known.slot, !medium_.answers_at_once()};
}

std::string FileStorage::description() const {
    const bool regular = medium_.kind() == FileMedium::Kind::regular;
    return (regular ? "file " : "device ") + medium_.path();
}

std::string FileStorage::trouble() const {
    // Less is a busy moment.
    constexpr std::uint32_t many = 3;
    if (medium_.unheard_checks() < many) return {};
    return description() + ": its file system does not answer";
}

BlockRequest& FileStorage::request_of(Operation& operation) noexcept {
    static_assert(std::is_standard_layout_v<BlockRequest>);
    auto* place = reinterpret_cast<std::byte*>(&operation) - offsetof(BlockRequest, work);
    return *reinterpret_cast<BlockRequest*>(place);
}

FileStorage& FileStorage::storage_of(BlockRequest& request) noexcept {
    return *static_cast<FileStorage*>(request.storage);
}

void FileStorage::submit(BlockRequest& request) {
    RTRS_ASSERT(request.offset + request.bytes <= geometry().size_bytes);
    request.storage = this;
    request.done_bytes = 0;
    request.stage = static_cast<std::uint32_t>(Technique::none);
    const bool changes =
        request.operation != BlockOperation::read && request.operation != BlockOperation::flush;
    if (changes && use_ == StorageOptions::Use::read_only) {
        request.failed_alone = true;
        deferred_.add(request, from_errno(EROFS));
        return;
    }
    // A write would bring back what was lost as zeroes.
    if (request.offset + request.bytes > medium_.cut_at()) {
        deferred_.add(request, from_errno(EIO));
        return;
    }
    ++in_flight_;
    if (holds_long(request)) ++long_holders_;
    switch (request.operation) {
        case BlockOperation::read:
        case BlockOperation::write:
            RTRS_ASSERT(request.data.size() >= request.bytes);
            if (reserve_ && reserve_->keeps(request)) return;
            return transfer(request);
        case BlockOperation::flush:
            return synchronize(request);
        case BlockOperation::discard:
        case BlockOperation::write_zeroes:
            return empty_range(request);
    }
}

void FileStorage::finish(BlockRequest& request, std::error_code error) {
    // First of all: the disk may have nothing to do.
    if (reserve_) give_to_disk(reserve_->ended(request));
    --in_flight_;
    if (holds_long(request)) --long_holders_;
    request.completed(request, error);
}

void FileStorage::give_to_disk(BlockRequest* list) {
    if (list == nullptr) return;
    while (list != nullptr) transfer(*std::exchange(list, list->next));
    reactor_.here().submit_early(1);
}

// A device that hangs, or a file system that does not answer, keeps a thread of its own waiting,
// not the one that all others share.
bool FileStorage::run_elsewhere(std::function<void()> work, std::function<void()> done) {
    rtrs::Reactor& here = reactor_.here();
    const bool short_wait =
        medium_.kind() == FileMedium::Kind::regular && medium_.answers_at_once();
    if (short_wait) return here.offload(std::move(work), std::move(done));
    if (!helper_) helper_.emplace([](const std::function<void()>& finished) { finished(); });
    return helper_->run(std::move(work),
                        [&here, done = std::move(done)]() mutable { here.post(std::move(done)); });
}

}  // namespace rnbd
