// rnbd-sysfs: the attributes of rnbd-server and rnbd-client as a file system.

#include <fuse.h>
#include <fuse_lowlevel.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/command_line_complaint.h"
#include "daemon/version.h"
#include "rnbd-sysfs/file_system.h"

namespace rnbd {
namespace {

namespace exit_code {
constexpr int ok = 0;
constexpr int failed = 1;
constexpr int usage = 2;
}  // namespace exit_code

struct Options {
    std::string mount_point;
    std::string server = "/run/rnbd/server.ctl";
    std::string client = "/run/rnbd/client.ctl";
    std::vector<std::string> mount_options;
    bool foreground = false;
};

// Nothing, or an exit code.
std::optional<int> parse(int argc, char** argv, Options& options) {
    CLI::App app{"Shows rnbd-server and rnbd-client as kernel RNBD's part of /sys.", "rnbd-sysfs"};
    app.set_version_flag("--version", std::string("rnbd-sysfs ") + version(),
                         "Print the version and end");
    app.set_help_flag("-h,--help", "Print this help and end");
    app.add_option("mount_point", options.mount_point, "An empty directory")
        ->type_name("MOUNTPOINT")
        ->check(not_empty("MOUNTPOINT"))
        ->required();
    app.add_option("--server", options.server, "rnbd-server's control socket")
        ->type_name("PATH")
        ->check(not_empty("PATH"));
    app.add_option("--client", options.client, "rnbd-client's control socket")
        ->type_name("PATH")
        ->check(not_empty("PATH"));
    app.add_flag("--foreground", options.foreground, "Do not go into the background");
    app.add_option("-o", options.mount_options, "Options of mount.fuse3(8), as allow_other")
        ->type_name("OPTION")
        ->allow_extra_args(false);
    try {
        app.parse(words_to_parse({argv + 1, argv + argc}));
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() != 0) {
            std::fprintf(stderr, "rnbd-sysfs: %s\n", command_line_complaint(app, error).c_str());
            return exit_code::usage;
        }
        app.exit(error);  // prints help or version
        return exit_code::ok;
    }
    return std::nullopt;
}

struct Mount {
    fuse* handle = nullptr;
    bool mounted = false;
    bool signals = false;

    ~Mount() {
        if (handle == nullptr) return;
        if (signals) fuse_remove_signal_handlers(fuse_get_session(handle));
        if (mounted) fuse_unmount(handle);
        fuse_destroy(handle);
    }
};

// The writer of a map_device waits in a thread of its own.
int serve(fuse* handle) {
    fuse_loop_config* const config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_max_threads(config, 64);
    fuse_loop_cfg_set_clone_fd(config, 0);
    const int status = fuse_loop_mt(handle, config);
    fuse_loop_cfg_destroy(config);
    // A signal that ends it is its number.
    return status < 0 ? exit_code::failed : exit_code::ok;
}

// What libfuse mounts over as well, and nobody reaches then; null: nothing. A directory that cannot
// be looked at is libfuse's to complain of.
const char* in_the_way(const std::string& mount_point) {
    std::error_code error;
    const auto status = std::filesystem::status(mount_point, error);
    if (error || !std::filesystem::exists(status)) return nullptr;
    if (!std::filesystem::is_directory(status)) return "a file";
    const bool empty = std::filesystem::is_empty(mount_point, error);
    return error || empty ? nullptr : "a directory with something in it";
}

int run(const Options& options) {
    if (const char* const found = in_the_way(options.mount_point)) {
        std::fprintf(stderr, "rnbd-sysfs: %s: found %s, expected an empty directory\n",
                     options.mount_point.c_str(), found);
        return exit_code::failed;
    }
    FileSystem files{AttributeClient({.server = options.server, .client = options.client})};
    fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
    const std::unique_ptr<fuse_args, decltype(&fuse_opt_free_args)> owner(&arguments,
                                                                          &fuse_opt_free_args);
    std::string mount_options = "fsname=rnbd,subtype=sysfs,default_permissions";
    for (const auto& option : options.mount_options) mount_options += "," + option;
    if (fuse_opt_add_arg(&arguments, "rnbd-sysfs") != 0 ||
        fuse_opt_add_arg(&arguments, "-o") != 0 ||
        fuse_opt_add_arg(&arguments, mount_options.c_str()) != 0) {
        return exit_code::failed;
    }
    // fuse says what is wrong with options and mount points.
    Mount mount;
    mount.handle = fuse_new(&arguments, &file_system_operations(), sizeof(fuse_operations), &files);
    if (mount.handle == nullptr) return exit_code::usage;
    if (fuse_mount(mount.handle, options.mount_point.c_str()) != 0) return exit_code::failed;
    mount.mounted = true;
    if (fuse_daemonize(options.foreground ? 1 : 0) != 0) return exit_code::failed;
    if (fuse_set_signal_handlers(fuse_get_session(mount.handle)) != 0) return exit_code::failed;
    mount.signals = true;
    return serve(mount.handle);
}

}  // namespace
}  // namespace rnbd

int main(int argc, char** argv) {
    try {
        rnbd::Options options;
        if (const auto exit = rnbd::parse(argc, argv, options)) return *exit;
        // It leaves the folder that it was started in.
        for (std::string* path : {&options.mount_point, &options.server, &options.client}) {
            std::error_code error;
            const auto absolute = std::filesystem::absolute(*path, error);
            if (!error) *path = absolute.string();
        }
        return rnbd::run(options);
    } catch (const std::exception& exception) {
        std::fprintf(stderr, "rnbd-sysfs: %s\n", exception.what());
        return rnbd::exit_code::failed;
    }
}
