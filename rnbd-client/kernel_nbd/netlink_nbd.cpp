#include <fcntl.h>
#include <fmt/format.h>
#include <linux/nbd-netlink.h>
#include <netlink/errno.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "rnbd-client/kernel_nbd/identifier_lock.h"
#include "rnbd-client/kernel_nbd/kernel_nbd.h"
#include "rnbd-client/kernel_nbd/use.h"
#include "rnbd-client/nbd/wire.h"
#include "rtrs/base/descriptor.h"

namespace rnbd {
namespace {

// The largest timeout that the kernel can count at any of its tick rates, 23 days. Zero would be
// "none" only for devices with one connection; those with several would lose one after 30 s.
constexpr std::uint64_t request_timeout_s = 2'000'000;

std::string error_text(int error) { return std::generic_category().message(error); }

std::string sysfs(std::uint32_t index, const char* attribute) {
    return fmt::format("/sys/block/nbd{}/{}", index, attribute);
}

// First line; empty if there is none.
std::string read_line(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

bool is_bound(std::uint32_t index) { return !read_line(sysfs(index, "pid")).empty(); }

// The block layer's own limit on requests.
constexpr std::uint64_t request_kib_default = 1280;

// The driver does not ask how large requests may be. What is set stays with the device, also for
// the next server that it is attached to. Since Linux 6.11 this waits, unkillable, until no request
// is in flight.
std::expected<void, std::string> limit_requests(std::uint32_t index, std::uint32_t bytes_max) {
    const std::string path = sysfs(index, "queue/max_sectors_kb");
    std::uint64_t now = 0;
    if (!(std::ifstream(path) >> now)) return {};
    const std::uint64_t most = bytes_max >> 10;
    const std::uint64_t wanted = std::min(std::max(now, request_kib_default), most);
    if (wanted == now) return {};
    std::ofstream out(path);
    out << wanted << '\n' << std::flush;
    // Too small costs only speed.
    if (out || wanted > now) return {};
    return std::unexpected(fmt::format(
        "{}: the server takes at most {} KiB, and the kernel keeps {}", path, most, now));
}

// Requests that were sent to a socket and not answered.
bool has_requests(std::uint32_t index) {
    std::ifstream in(sysfs(index, "inflight"));
    std::uint64_t reads = 0, writes = 0;
    in >> reads >> writes;
    return reads + writes > 0;
}

// Mounted, or opened exclusively in another way.
bool is_used(std::uint32_t index) {
    const rtrs::Descriptor device(
        ::open(fmt::format("/dev/nbd{}", index).c_str(), O_RDONLY | O_CLOEXEC | O_EXCL));
    return !device && errno == EBUSY;
}

// The first that failed, and its errno. Each partition has a cache of its own, which a flush of the
// whole device leaves as it is: of a file system or a claim that has ended there is nothing in it,
// but of who has it open without one there may be. One that has gone meanwhile is no failure.
std::pair<std::string, int> flush_partitions(std::uint32_t index) {
    std::pair<std::string, int> failed;
    for (const std::string& path : kernel_device_partitions(index)) {
        const rtrs::Descriptor partition(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        if (partition && ::fsync(partition.get()) == 0) continue;
        if (!partition && (errno == ENOENT || errno == ENXIO)) continue;
        if (failed.second == 0) failed = {path, errno};
    }
    return failed;
}

// What the kernel was told when the device was attached, and its users with it, stays.
std::uint32_t blocks_of(std::uint32_t index, const KernelBinding& binding) {
    std::uint32_t block_bytes = 0;
    std::ifstream in(sysfs(index, "queue/logical_block_size"));
    return in >> block_bytes ? block_bytes : binding.block_bytes;
}

// Empty: the binding can keep to it.
std::string misfit(std::uint32_t index, const KernelBinding& binding) {
    const std::uint32_t block_bytes = blocks_of(index, binding);
    if (block_bytes < binding.block_bytes) {
        return fmt::format("with blocks of {} bytes, and the volume has blocks of {} now",
                           block_bytes, binding.block_bytes);
    }
    const bool read_only = (binding.flags & nbd::transmission_flag::read_only) != 0;
    if (read_only && read_line(sysfs(index, "ro")) == "0") {
        return "for writing, and the volume is only read now";
    }
    return {};
}

std::optional<std::uint32_t> find_bound(const std::string& identifier) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/block", error)) {
        const std::string name = entry.path().filename();
        if (!name.starts_with("nbd")) continue;
        if (read_line(entry.path() / "backend") != identifier) continue;
        const auto index = static_cast<std::uint32_t>(std::stoul(name.substr(3)));
        if (is_bound(index)) return index;
    }
    return std::nullopt;
}

struct SocketFree {
    void operator()(nl_sock* socket) const noexcept { nl_socket_free(socket); }
};
struct MessageFree {
    void operator()(nl_msg* message) const noexcept { nlmsg_free(message); }
};
using Socket = std::unique_ptr<nl_sock, SocketFree>;
using Message = std::unique_ptr<nl_msg, MessageFree>;

// One conversation with the driver.
class Conversation {
  public:
    // ERRORS: what is missing on this machine.
    static std::expected<Conversation, std::string> open() {
        Conversation made;
        made.socket_.reset(nl_socket_alloc());
        if (!made.socket_) return std::unexpected(error_text(ENOMEM));
        if (const int error = genl_connect(made.socket_.get()); error < 0) {
            return std::unexpected(fmt::format("generic netlink: {}", nl_geterror(error)));
        }
        made.family_ = genl_ctrl_resolve(made.socket_.get(), NBD_GENL_FAMILY_NAME);
        if (made.family_ < 0) {
            return std::unexpected(
                "the kernel has no NBD driver; \"modprobe nbd\" tells why (Debian's kernels have "
                "the module)");
        }
        return made;
    }

    Message message(std::uint8_t command) const {
        Message made(nlmsg_alloc());
        if (made) genlmsg_put(made.get(), 0, 0, family_, 0, 0, command, NBD_GENL_VERSION);
        return made;
    }

    // Waits for the kernel's acknowledgement. Returns an errno.
    int send(Message message, std::uint32_t* index) {
        if (!message) return ENOMEM;
        nl_cb* const callbacks = nl_cb_alloc(NL_CB_DEFAULT);
        if (callbacks == nullptr) return ENOMEM;
        int result = 1;
        nl_cb_err(callbacks, NL_CB_CUSTOM, &on_error, &result);
        nl_cb_set(callbacks, NL_CB_ACK, NL_CB_CUSTOM, &on_acknowledged, &result);
        nl_cb_set(callbacks, NL_CB_VALID, NL_CB_CUSTOM, &on_answer, index);
        int sent = nl_send_auto(socket_.get(), message.get());
        while (sent >= 0 && result > 0) {
            const int received = nl_recvmsgs(socket_.get(), callbacks);
            // -NLE_INTR and the like: the acknowledgement is still to come.
            if (received < 0 && received != -NLE_INTR && result > 0) sent = received;
        }
        nl_cb_put(callbacks);
        return sent < 0 ? EIO : -result;
    }

  private:
    static int on_error(sockaddr_nl*, nlmsgerr* error, void* result) {
        *static_cast<int*>(result) = error->error;
        return NL_STOP;
    }
    static int on_acknowledged(nl_msg*, void* result) {
        *static_cast<int*>(result) = 0;
        return NL_STOP;
    }
    static int on_answer(nl_msg* message, void* index) {
        nlattr* attributes[NBD_ATTR_MAX + 1];
        if (index != nullptr &&
            genlmsg_parse(nlmsg_hdr(message), 0, attributes, NBD_ATTR_MAX, nullptr) == 0) {
            if (nlattr* const found = attributes[NBD_ATTR_INDEX]; found != nullptr) {
                *static_cast<std::uint32_t*>(index) = nla_get_u32(found);
            }
        }
        return NL_OK;
    }

    Socket socket_;
    int family_ = -1;
};

// True if all of it fitted.
bool put_sockets(nl_msg* message, std::span<const int> sockets) {
    nlattr* const list = nla_nest_start(message, NBD_ATTR_SOCKETS);
    if (list == nullptr) return false;
    for (const int fd : sockets) {
        nlattr* const item = nla_nest_start(message, NBD_SOCK_ITEM);
        if (item == nullptr || nla_put_u32(message, NBD_SOCK_FD, static_cast<unsigned>(fd)) < 0) {
            return false;
        }
        nla_nest_end(message, item);
    }
    nla_nest_end(message, list);
    return true;
}

bool put_identifier(nl_msg* message, const KernelBinding& binding) {
    return nla_put_string(message, NBD_ATTR_BACKEND_IDENTIFIER, binding.identifier.c_str()) >= 0;
}

class NetlinkNbd final : public KernelNbd {
  public:
    std::expected<Attached, std::string> attach(const KernelBinding& binding,
                                                std::span<const int> sockets) override {
        auto conversation = Conversation::open();
        if (!conversation) return std::unexpected(conversation.error());
        if (!lock_) {
            auto lock = IdentifierLock::take(binding.identifier);
            if (!lock) return std::unexpected(lock.error());
            lock_ = std::move(*lock);
        }
        // Nobody else serves it.
        if (const auto left = find_bound(binding.identifier)) {
            if (binding.takes_over && !has_requests(*left)) {
                const std::string why_not = misfit(*left, binding);
                if (why_not.empty()) return take_over(*conversation, binding, *left, sockets);
                if (is_used(*left)) return std::unexpected(left_in_use(*left, why_not));
            }
            if (const auto done = cut(*left); !done) return std::unexpected(done.error());
        }
        std::uint32_t index = binding.index.value_or(0);
        const int error =
            conversation->send(connect_message(*conversation, binding, sockets), &index);
        if (error != 0) return std::unexpected(connect_error(binding, error));
        return Attached{index, binding.block_bytes};
    }

    std::expected<void, std::string> settle(const KernelBinding& binding,
                                            std::uint32_t index) override {
        // One that was taken over may have had another size, and another server.
        auto done = resize(binding, index);
        if (done) done = limit_requests(index, binding.request_bytes_max);
        if (!done) {
            // Somebody may have detached it meanwhile, and another have got the same one.
            if (read_line(sysfs(index, "backend")) == binding.identifier) (void)cut(index);
            return done;
        }
        // The kernel announces the device before it knows the identifier that udev names it by.
        announce(index);
        return {};
    }

    std::expected<void, std::string> resize(const KernelBinding& binding,
                                            std::uint32_t index) override {
        auto conversation = Conversation::open();
        if (!conversation) return std::unexpected(conversation.error());
        auto message = reconfigure_message(*conversation, binding, index);
        const bool whole =
            message && nla_put_u64(message.get(), NBD_ATTR_SIZE_BYTES, binding.size_bytes) >= 0;
        return reconfigure(*conversation, index, whole ? std::move(message) : nullptr);
    }

    std::expected<Detached, std::string> detach(std::uint32_t index, Use use) override {
        const std::string path = fmt::format("/dev/nbd{}", index);
        const int exclusive = use == Use::ignore ? 0 : O_EXCL;
        rtrs::Descriptor device(::open(path.c_str(), O_RDONLY | O_CLOEXEC | exclusive));
        const int failed = device ? 0 : errno;
        // What else keeps it from being opened says nothing about its users.
        const bool used = failed == EBUSY || (failed != 0 && !kernel_device_use(index).empty());
        if (used && use != Use::ignore) return Detached::used;
        // Who has it open otherwise may have written what only the kernel has.
        std::pair<std::string, int> unflushed{path, failed};
        if (device) unflushed = flush_partitions(index);
        if (device && ::fsync(device.get()) != 0) unflushed = {path, errno};
        // Open until it is cut: nobody can mount it in between.
        const auto done = cut(index);
        device.reset();
        if (!done) return std::unexpected(done.error());
        if (unflushed.second != 0) {
            return std::unexpected(fmt::format("flushing {} before it was detached failed: {}",
                                               unflushed.first, error_text(unflushed.second)));
        }
        return Detached::gone;
    }

    std::expected<void, std::string> cut(std::uint32_t index) override {
        auto conversation = Conversation::open();
        if (!conversation) return std::unexpected(conversation.error());
        auto message = conversation->message(NBD_CMD_DISCONNECT);
        if (message) nla_put_u32(message.get(), NBD_ATTR_INDEX, index);
        const int error = conversation->send(std::move(message), nullptr);
        if (error == 0) return {};
        return std::unexpected(fmt::format("detaching /dev/nbd{}: {}", index, error_text(error)));
    }

    std::string use_of(std::uint32_t index) const override { return kernel_device_use(index); }
    bool awaits_answers(std::uint32_t index) const override { return has_requests(index); }

  private:
    static Message connect_message(const Conversation& conversation, const KernelBinding& binding,
                                   std::span<const int> sockets) {
        auto message = conversation.message(NBD_CMD_CONNECT);
        nl_msg* const raw = message.get();
        const bool whole =
            raw != nullptr &&
            (!binding.index || nla_put_u32(raw, NBD_ATTR_INDEX, *binding.index) >= 0) &&
            put_identifier(raw, binding) &&
            nla_put_u64(raw, NBD_ATTR_SIZE_BYTES, binding.size_bytes) >= 0 &&
            nla_put_u64(raw, NBD_ATTR_BLOCK_SIZE_BYTES, binding.block_bytes) >= 0 &&
            nla_put_u64(raw, NBD_ATTR_SERVER_FLAGS, binding.flags) >= 0 &&
            nla_put_u64(raw, NBD_ATTR_TIMEOUT, request_timeout_s) >= 0 &&
            nla_put_u64(raw, NBD_ATTR_DEAD_CONN_TIMEOUT, orphan_seconds) >= 0 &&
            put_sockets(raw, sockets);
        return whole ? std::move(message) : nullptr;
    }

    static std::string connect_error(const KernelBinding& binding, int error) {
        if (error == EBUSY && binding.index) {
            const std::string user = read_line(sysfs(*binding.index, "backend"));
            return fmt::format("/dev/nbd{} is in use{}", *binding.index,
                               user.empty() ? "" : " for " + user);
        }
        if (error == EPERM) return "attaching to the kernel needs CAP_SYS_ADMIN";
        return fmt::format("the kernel refuses {}: {}",
                           binding.index ? fmt::format("/dev/nbd{}", *binding.index) : "a device",
                           error_text(error));
    }

    // Null: it does not fit.
    static Message reconfigure_message(const Conversation& conversation,
                                       const KernelBinding& binding, std::uint32_t index) {
        auto message = conversation.message(NBD_CMD_RECONFIGURE);
        const bool whole = message && nla_put_u32(message.get(), NBD_ATTR_INDEX, index) >= 0 &&
                           put_identifier(message.get(), binding);
        return whole ? std::move(message) : nullptr;
    }

    static std::expected<void, std::string> reconfigure(Conversation& conversation,
                                                        std::uint32_t index, Message message) {
        const int error = conversation.send(std::move(message), nullptr);
        if (error == 0) return {};
        return std::unexpected(fmt::format("changing /dev/nbd{}: {}", index, error_text(error)));
    }

    static std::expected<Attached, std::string> take_over(Conversation& conversation,
                                                          const KernelBinding& binding,
                                                          std::uint32_t index,
                                                          std::span<const int> sockets) {
        if (binding.index && *binding.index != index) {
            return std::unexpected(fmt::format(
                "an earlier rnbd-client left /dev/nbd{} for this volume; detach it with "
                "\"nbd-client -d /dev/nbd{}\"",
                index, index));
        }
        // The sockets alone: whatever else is changed may wait for I/O that waits for them.
        auto message = reconfigure_message(conversation, binding, index);
        const bool whole = message && put_sockets(message.get(), sockets);
        const auto done = reconfigure(conversation, index, whole ? std::move(message) : nullptr);
        if (!done) return std::unexpected(done.error());
        return Attached{index, blocks_of(index, binding)};
    }

    static std::string left_in_use(std::uint32_t index, const std::string& how) {
        return fmt::format(
            "an earlier rnbd-client left /dev/nbd{} in use {}: change that back, or end its users",
            index, how);
    }

    static void announce(std::uint32_t index) {
        std::ofstream(sysfs(index, "uevent")) << "change\n";
    }

    // From the first attempt on; a call that hangs keeps it, as it may still attach.
    std::optional<IdentifierLock> lock_;
};

}  // namespace

std::shared_ptr<KernelNbd> netlink_nbd() { return std::make_shared<NetlinkNbd>(); }

}  // namespace rnbd
