// The attributes of both daemons as a file system that behaves like the kernel's sysfs.
//
// Every call asks the daemons. Nothing is cached, so nothing is stale, and a daemon may come and
// go. An open file keeps the text of its last read from the start, so that a reader who reads it in
// pieces gets one consistent text. The data of one write(), at most a page, is one value.
//
// ERRORS, besides those of the attributes: ENOENT while the daemon is not there; ENODEV for an open
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
    std::string text;  // from the newest read from the start
};

struct FileSystem {
    AttributeClient attributes;
    // The kernel reports a close() only after it has returned; for some files the end of the mount
    // comes before the report.
    std::mutex mutex;
    std::map<const OpenFile*, std::unique_ptr<OpenFile>> open{};
};

// private_data of fuse_new() is a FileSystem, which outlives the mount.
const fuse_operations& file_system_operations() noexcept;

}  // namespace rnbd
