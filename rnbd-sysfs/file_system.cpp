#include "rnbd-sysfs/file_system.h"

#include <fcntl.h>
#include <fuse.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace rnbd {
namespace {

// As sysfs: the size that every file has, and the most that one write() takes.
constexpr std::size_t sysfs_file_bytes = 4096;

FileSystem& file_system() { return *static_cast<FileSystem*>(fuse_get_context()->private_data); }

const AttributeClient& attributes() { return file_system().attributes; }

OpenFile& file_of(const fuse_file_info& info) { return *reinterpret_cast<OpenFile*>(info.fh); }

// What /sys has whether or not a module is loaded.
bool is_always_there(std::string_view path) {
    return path == "/" || path == "/class" || path == "/block";
}

std::expected<AttributeListing, int> look_up(const char* path) {
    auto listing = attributes().list(path, AttributeClient::Depth::children);
    if (listing) return std::move(*listing);
    if (is_always_there(path)) {
        AttributeListing empty;
        if (std::string_view(path) == "/") {
            empty.entries = {{.path = "block", .target = {}}, {.path = "class", .target = {}}};
        }
        return empty;
    }
    return std::unexpected(to_errno(listing.error()));
}

void describe(const AttributeEntry& entry, struct stat& to) {
    to = {};
    to.st_uid = ::getuid();
    to.st_gid = ::getgid();
    to.st_nlink = 1;
    switch (entry.kind) {
        case AttributeEntry::Kind::directory:
            to.st_mode = S_IFDIR | 0755;
            to.st_nlink = 2;
            return;
        case AttributeEntry::Kind::file:
            to.st_mode = S_IFREG | (entry.mode & 07777);
            to.st_size = sysfs_file_bytes;
            return;
        case AttributeEntry::Kind::link:
            to.st_mode = S_IFLNK | 0777;
            to.st_size = static_cast<off_t>(entry.target.size());
            return;
    }
}

std::string name_of(const AttributeEntry& entry) {
    const auto slash = entry.path.rfind('/');
    return slash == std::string::npos ? entry.path : entry.path.substr(slash + 1);
}

int get_attributes(const char* path, struct stat* to, fuse_file_info*) {
    // A daemon that does not answer must not be in the way to the other's.
    if (is_always_there(path)) {
        describe({.path = "", .target = {}}, *to);
        return 0;
    }
    const auto found = look_up(path);
    if (!found) return -found.error();
    describe(found->entry, *to);
    return 0;
}

int read_link(const char* path, char* to, std::size_t bytes) {
    const auto found = look_up(path);
    if (!found) return -found.error();
    if (found->entry.kind != AttributeEntry::Kind::link) return -EINVAL;
    const std::size_t length = std::min(bytes - 1, found->entry.target.size());
    std::memcpy(to, found->entry.target.data(), length);
    to[length] = '\0';
    return 0;
}

int read_directory(const char* path, void* to, fuse_fill_dir_t fill, off_t, fuse_file_info*,
                   fuse_readdir_flags) {
    const auto found = look_up(path);
    if (!found) return -found.error();
    if (found->entry.kind != AttributeEntry::Kind::directory) return -ENOTDIR;
    const auto none = static_cast<fuse_fill_dir_flags>(0);
    fill(to, ".", nullptr, 0, none);
    fill(to, "..", nullptr, 0, none);
    for (const AttributeEntry& entry : found->entries) {
        struct stat status{};
        describe(entry, status);
        if (fill(to, name_of(entry).c_str(), &status, 0, none) != 0) return -ENOMEM;
    }
    return 0;
}

int open_file(const char* path, fuse_file_info* info) {
    const auto found = look_up(path);
    if (!found) return -found.error();
    if (found->entry.kind == AttributeEntry::Kind::directory) return -EISDIR;
    const bool to_write = (info->flags & O_ACCMODE) != O_RDONLY;
    if (to_write && (found->entry.mode & 0222) == 0) return -EACCES;
    auto file = std::make_unique<OpenFile>();
    file->path = path;
    info->fh = reinterpret_cast<std::uint64_t>(file.get());
    FileSystem& files = file_system();
    const std::scoped_lock lock(files.mutex);
    files.open.emplace(file.get(), std::move(file));
    // Past the page cache: every read and every write is a call of ours.
    info->direct_io = 1;
    return 0;
}

int release_file(const char*, fuse_file_info* info) {
    FileSystem& files = file_system();
    const std::scoped_lock lock(files.mutex);
    files.open.erase(&file_of(*info));
    return 0;
}

// That the attribute is not there was for open() to say. An attribute that is there may answer
// ENOENT to what it was asked for.
int gone_while_open(const std::string& path, int error) {
    return error == ENOENT && !look_up(path.c_str()) ? ENODEV : error;
}

int read_file(const char*, char* to, std::size_t bytes, off_t offset, fuse_file_info* info) {
    OpenFile& file = file_of(*info);
    const std::scoped_lock lock(file.mutex);
    if (offset == 0) {
        auto text = attributes().read(file.path);
        if (!text) return -gone_while_open(file.path, to_errno(text.error()));
        file.text = std::move(*text);
    }
    const auto at = std::min(static_cast<std::size_t>(offset), file.text.size());
    return static_cast<int>(file.text.copy(to, bytes, at));
}

int write_file(const char*, const char* from, std::size_t bytes, off_t, fuse_file_info* info) {
    const std::string path = file_of(*info).path;
    const std::size_t taken = std::min(bytes, sysfs_file_bytes);
    const auto written = attributes().write(path, {from, taken});
    if (!written) return -gone_while_open(path, to_errno(written.error()));
    return static_cast<int>(taken);
}

// `echo 1 > file` empties it first: sysfs takes that and does nothing.
int truncate_file(const char* path, off_t, fuse_file_info*) {
    const auto found = look_up(path);
    if (!found) return -found.error();
    return (found->entry.mode & 0222) == 0 ? -EACCES : 0;
}

// touch(1) of what is there.
int set_times(const char* path, const timespec*, fuse_file_info*) {
    const auto found = look_up(path);
    return found ? 0 : -found.error();
}

void* start(fuse_conn_info*, fuse_config* config) {
    config->use_ino = 0;
    config->entry_timeout = 0;
    config->negative_timeout = 0;
    config->attr_timeout = 0;
    config->direct_io = 1;
    config->hard_remove = 1;
    return fuse_get_context()->private_data;
}

fuse_operations make_operations() {
    fuse_operations operations{};
    operations.init = start;
    operations.getattr = get_attributes;
    operations.readlink = read_link;
    operations.readdir = read_directory;
    operations.open = open_file;
    operations.release = release_file;
    operations.read = read_file;
    operations.write = write_file;
    operations.truncate = truncate_file;
    operations.utimens = set_times;
    operations.create = [](const char*, mode_t, fuse_file_info*) { return -EACCES; };
    operations.mknod = [](const char*, mode_t, dev_t) { return -EACCES; };
    operations.mkdir = [](const char*, mode_t) { return -EPERM; };
    operations.rmdir = [](const char*) { return -EPERM; };
    operations.unlink = [](const char*) { return -EPERM; };
    operations.symlink = [](const char*, const char*) { return -EPERM; };
    operations.link = [](const char*, const char*) { return -EPERM; };
    operations.rename = [](const char*, const char*, unsigned) { return -EPERM; };
    return operations;
}

}  // namespace

const fuse_operations& file_system_operations() noexcept {
    static const fuse_operations operations = make_operations();
    return operations;
}

}  // namespace rnbd
