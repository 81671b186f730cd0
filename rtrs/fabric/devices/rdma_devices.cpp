#include "rtrs/rdma_devices.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "rtrs/base/descriptor.h"
#include "rtrs/base/error.h"
#include "rtrs/base/host.h"
#include "rtrs/base/pages.h"
#include "rtrs/sockets/address.h"

namespace rtrs {
namespace {

// A file of RDMA's that this process may not open: libraries take that for no device. Empty: none.
std::string closed_file() {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/infiniband", none)) {
        const std::string name = entry.path().filename();
        if (!name.starts_with("uverbs") && name != "rdma_cm") continue;
        if (::access(entry.path().c_str(), R_OK | W_OK) != 0 && errno == EACCES)
            return entry.path();
    }
    return {};
}

RdmaDevices::Error refusal(const std::string& host, std::error_code error) {
    if (error == std::errc::no_such_device) {
        const std::string closed = closed_file();
        if (!closed.empty()) {
            return {error, "no RDMA device that this user may use has the address " + host + " (" +
                               closed + " is not open to it)"};
        }
        return {error, "no RDMA device has the address " + host +
                           " (rdma link shows devices; soft-RoCE is made with rdma link add)"};
    }
    return {error, "the RDMA device at " + host + " cannot be used: " + error.message()};
}

}  // namespace

std::expected<std::string, std::error_code> source_towards(const std::string& destination) {
    const auto to = parse_address(destination);
    if (!to) return std::unexpected(to.error());
    const Descriptor socket(::socket(to->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket || ::connect(socket.get(), to->get(), to->bytes) != 0)
        return std::unexpected(from_errno(errno));
    const std::string own = local_address(socket.get());
    if (own.empty()) return std::unexpected(from_errno(errno));
    return host_of(own);
}

std::expected<Fabric*, RdmaDevices::Error> RdmaDevices::at(const std::string& host) {
    if (!make_) return std::unexpected(not_built_in());
    auto made = make_(host);
    if (!made) return std::unexpected(refusal(host, made.error()));
    const std::string device = (*made)->device();
    const auto same =
        std::ranges::find_if(known_, [&](const Known& known) { return is_of(known, device); });
    if (same != known_.end()) return same->fabric.get();
    return known_.emplace_back(host, std::move(*made)).fabric.get();
}

// While its device is away a fabric does not tell it; it comes back where its address leads.
bool RdmaDevices::is_of(const Known& known, const std::string& device) {
    const std::string now = known.fabric->device();
    if (!now.empty()) return now == device;
    const auto made = make_(known.host);
    return made && (*made)->device() == device;
}

std::expected<Fabric*, RdmaDevices::Error> RdmaDevices::towards(const std::string& source,
                                                                const std::string& destination) {
    if (!source.empty() || !make_) return at(source);
    const auto host = source_towards(destination);
    if (host) return at(*host);
    return std::unexpected(
        Error{host.error(), destination + " cannot be reached: " + host.error().message()});
}

RdmaDevices::Error RdmaDevices::not_built_in() {
    return {from_errno(EOPNOTSUPP),
            "RDMA is not built in: librdmacm and libibverbs were not there (cmake -D "
            "RNBD_VERBS=ON says what is missing)"};
}

bool windows_work(Fabric& fabric) {
    auto domain = fabric.create_domain();
    if (!domain) return false;
    const std::unique_ptr<void, decltype(&std::free)> memory(
        std::aligned_alloc(page_bytes, page_bytes), &std::free);
    if (!memory) return false;
    auto region = (*domain)->register_memory({static_cast<std::byte*>(memory.get()), page_bytes},
                                             Access::local);
    if (!region) return false;
    return (*domain)->create_windows(**region, 1).has_value();
}

}  // namespace rtrs
