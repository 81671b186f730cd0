// The kernel's NBD driver, as blocking calls.
//
// Every call except use_of() may block for as long as the kernel likes, so KernelCall runs them on
// threads of their own.
//
// THREAD: any, several at once, but one attach() at a time.
//
// SOURCE: linux/nbd-netlink.h; generic netlink family "nbd", version 1. The kernel's own timeout is
// not used: the session's hold_time decides how long I/O waits.
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
    // The N of /dev/nbdN; none: any free device.
    std::optional<std::uint32_t> index;
    // A power of two, 512 .. page size.
    std::uint32_t block_bytes = 512;
    // A multiple of block_bytes.
    std::uint64_t size_bytes = 0;
    // The largest READ or WRITE.
    std::uint32_t request_bytes_max = 32u << 20;
    // Bits of nbd::transmission_flag.
    std::uint16_t flags = 0;
    // Whether a device that an earlier process left may be taken over, because it is the same to
    // its users: nothing was lost, and nobody else can have written unnoticed meanwhile.
    bool takes_over = true;
};

class KernelNbd {
  public:
    virtual ~KernelNbd() = default;

    struct Attached {
        std::uint32_t index = 0;
        // The block size that its users know; a device that was taken over may have larger blocks
        // than the binding.
        std::uint32_t block_bytes = 512;
    };
    // Gives the kernel its ends of the sockets (connected, stream). The block device exists then,
    // and its first requests may be in the sockets; nothing here waits for their answers. A device
    // that an earlier process left behind under the same identifier is taken over if it lost no
    // request and binding.takes_over is true; otherwise its I/O fails, and it is attached anew. If
    // such a device is in use with smaller blocks than the binding's, or for writing although the
    // binding is read-only, it stays as it is, and the result is an error. The caller closes its
    // copies of the sockets.
    // ERRORS: one line for people.
    virtual std::expected<Attached, std::string> attach(const KernelBinding& binding,
                                                        std::span<const int> sockets) = 0;
    // Tells the kernel the remaining settings of the device, and its name for udev. Waits for
    // requests in flight, so the sockets must be served meanwhile. If it fails, the device is cut
    // off.
    virtual std::expected<void, std::string> settle(const KernelBinding& binding,
                                                    std::uint32_t index) = 0;
    // The block device has another size from now on.
    virtual std::expected<void, std::string> resize(const KernelBinding& binding,
                                                    std::uint32_t index) = 0;

    // What to do with a device that is in use. Later values go further.
    enum class Use : std::uint8_t {
        refuse,  // it stays as it is
        leave,   // it stays without connections: its I/O waits a while for another process
        ignore,  // it is detached nevertheless; later requests fail
    };
    enum class Detached : std::uint8_t { gone, used };
    // Writes back and flushes, then detaches. used: it is mounted, or opened exclusively in another
    // way.
    // ERRORS: what was written may be lost, or the kernel still has the device.
    virtual std::expected<Detached, std::string> detach(std::uint32_t index, Use use) = 0;
    // Detaches at once: requests that are not answered fail.
    virtual std::expected<void, std::string> cut(std::uint32_t index) = 0;

    // These do not block.
    // As kernel_device_use().
    virtual std::string use_of(std::uint32_t index) const = 0;
    // Whether the device waits for answers to requests that it has sent to a socket. Only cut()
    // ends those whose socket is closed: no other process can answer them.
    virtual bool awaits_answers(std::uint32_t index) const = 0;
};

// How long the I/O of a device that lost its process waits for the next one.
inline constexpr unsigned orphan_seconds = 30;

// The NBD driver of this machine, for devices of one identifier. From its first attempt on and for
// as long as the object lives, no other process may attach them (identifier_lock.h).
std::shared_ptr<KernelNbd> netlink_nbd();

}  // namespace rnbd
