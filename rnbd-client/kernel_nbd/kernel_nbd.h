// The kernel's NBD driver, as blocking calls.
//
// Every call but use_of() may block for as long as the kernel likes: KernelCall runs them on
// threads of their own. THREAD: any, several at once, but one attach() at a time.
//
// Layouts: linux/nbd-netlink.h; generic netlink family "nbd", version 1. The kernel's own timeout
// is out of the way: the session's hold_time decides how long I/O waits.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace rnbd {

struct KernelBinding {
    // backend_identifier().
    std::string identifier;
    // The N of /dev/nbdN; none: one that is free.
    std::optional<std::uint32_t> index;
    // A power of two, 512 .. page size, and a multiple of it.
    std::uint32_t block_bytes = 512;
    std::uint64_t size_bytes = 0;
    // A READ or WRITE must not be larger.
    std::uint32_t request_bytes_max = 32u << 20;
    // nbd::transmission_flag.
    std::uint16_t flags = 0;
    // One that an earlier process left is the same to its users: nothing was lost, and nobody else
    // can have written meanwhile without being noticed.
    bool takes_over = true;
};

class KernelNbd {
  public:
    virtual ~KernelNbd() = default;

    struct Attached {
        std::uint32_t index = 0;
        // As its users know them: one that was taken over may have larger ones than the binding.
        std::uint32_t block_bytes = 512;
    };
    // Gives the kernel its ends of the sockets (connected, stream); the block device is there then,
    // and its first requests may be in them. Nothing here waits for the answers. A device that an
    // earlier process left behind under the same identifier is taken over if it lost no request,
    // and binding.takes_over; otherwise its I/O fails, and it is attached anew. One that is used
    // with smaller blocks than the binding's, or for writing where that only reads, stays as it is,
    // and is an error. The caller closes its copies of the sockets.
    // ERRORS: one line for people.
    virtual std::expected<Attached, std::string> attach(const KernelBinding& binding,
                                                        std::span<const int> sockets) = 0;
    // The rest of what it has to know, and its name for udev. Waits for requests in flight: the
    // sockets must be served. When it fails the device is cut off.
    virtual std::expected<void, std::string> settle(const KernelBinding& binding,
                                                    std::uint32_t index) = 0;
    // The block device has another size from now on.
    virtual std::expected<void, std::string> resize(const KernelBinding& binding,
                                                    std::uint32_t index) = 0;

    // The later ones ask for more.
    enum class Use : std::uint8_t {
        refuse,  // a device that is used stays as it is
        leave,   // it stays without connections: its I/O waits a while for another process
        ignore,  // it is detached all the same; what comes afterwards fails
    };
    enum class Detached : std::uint8_t { gone, used };
    // Writes back and flushes, then detaches. Used: mounted, or opened exclusively in another way.
    // ERRORS: what was written may be lost, or the kernel has it still.
    virtual std::expected<Detached, std::string> detach(std::uint32_t index, Use use) = 0;
    // Detaches at once: requests that are not answered fail.
    virtual std::expected<void, std::string> cut(std::uint32_t index) = 0;

    // kernel_device_use(); the one call that does not block.
    virtual std::string use_of(std::uint32_t index) const = 0;
};

// How long the I/O of a device that lost its process waits for the next one.
inline constexpr unsigned orphan_seconds = 30;

// This machine's, for devices of one identifier: from its first attempt on, as long as it lives, no
// other process may attach them (identifier_lock.h).
std::shared_ptr<KernelNbd> netlink_nbd();

}  // namespace rnbd
