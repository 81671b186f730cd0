// The attributes of both daemons as a file system that behaves as the kernel's sysfs does.
//
// Every call asks the daemons: nothing is kept, so nothing is stale, and a daemon may come and go.
// An open file keeps the text that its reading from the start got, so that a reader who takes it in
// pieces gets one text. What one write() brings, at most a page, is one value.
//
// errno beside those of the attributes: ENOENT while the daemon is not there; ENODEV for an open
// file whose attribute has gone; EACCES for opening a read-only file for writing, also for root,
// and for making files; EPERM for making and removing directories and the like.
//
// THREAD: any, several at a time.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/attributes/client.h"

struct fuse_operations;

namespace rnbd {

struct OpenFile {
    std::string path;
    std::mutex mutex;
    std::string text;  // of the newest reading from the start
};

struct FileSystem {
    AttributeClient attributes;
    // The kernel tells of a close() after it has returned: of some, the mount's end comes first.
    std::mutex mutex;
    std::map<const OpenFile*, std::unique_ptr<OpenFile>> open{};
};

// private_data of fuse_new() is a FileSystem, which outlives the mount.
const fuse_operations& file_system_operations() noexcept;

}  // namespace rnbd
