// One mapped device: a remote volume, the NBD device on it, and the kernel's device on that.
//
// OWNER: Client. THREAD: the reactor's (rtrs/reactor.h).
// LIFE: start() -> serves -> stop() -> on_mapping_stopped. stop() does this, in order: the kernel's
// device is flushed and detached; the device leaves its sockets, and its connections end when all
// received requests are answered (either step is cut short after stop_time); the volume is flushed
// and closed at the server.
#pragma once

#include <expected>
#include <memory>
#include <string>
#include <vector>

#include "daemon/sockets/in_use.h"
#include "rnbd-client/config.h"
#include "rnbd-client/device.h"
#include "rnbd-client/kernel_nbd/kernel_device.h"
#include "rnbd-client/nbd/sockets.h"
#include "rnbd-client/writer_numbers.h"
#include "rnbd/remote_volume.h"
#include "rtrs/reactor.h"

namespace rnbd {

class Mapping final : public RemoteVolumeHandler,
                      public NbdSockets::Handler,
                      public KernelDevice::Handler {
  public:
    class Owner {
      public:
        // life() may have changed: what the next life of the daemon has to know of the mapping.
        virtual void on_mapping_changed(Mapping& mapping) = 0;
        // The mapping may be destroyed from inside this call.
        virtual void on_mapping_stopped(Mapping& mapping) = 0;
        // After stop(Use::refuse): the kernel's device is in use, so the mapping goes on.
        virtual void on_mapping_used(Mapping& mapping) = 0;
        // The mapping is stopping, and waits only for requests that the server does not answer.
        virtual void on_mapping_overdue(Mapping& mapping) = 0;

      protected:
        ~Owner() = default;
    };

    // number: see number(). former: what a former life of this daemon has left.
    Mapping(rtrs::Reactor& reactor, NbdSockets& sockets, RemoteSession& session,
            PermitShares& shares, ClientConfig::Device config, std::uint32_t number,
            const WriterNumbers::Life& former, Owner& owner);
    ~Mapping();  // ASSUMES: on_mapping_stopped was delivered
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    // Serves the device. The error is one line that names the address; the mapping is stopping then
    // already. InUse::waits: blocks for at most in_use_timeout per address that is in use.
    std::expected<void, std::string> start(InUse in_use);
    // use: what to do if the kernel's device is in use.
    void stop(KernelNbd::Use use);

    const ClientConfig::Device& config() const noexcept { return config_; }
    // The addresses of the configuration, with the ports that the system chose instead of port 0.
    std::vector<std::string> nbd_addresses() const;
    // The N of its attributes in block/rnbdN: the lowest number that was free.
    std::uint32_t number() const noexcept { return number_; }
    RemoteVolume& volume() noexcept { return *volume_; }
    Device& device() noexcept { return *device_; }
    std::size_t connections() const noexcept { return sockets_.connections(*device_); }
    // Null: the device is not attached to a device of the kernel.
    const KernelDevice* kernel() const noexcept { return kernel_.get(); }
    bool stopping() const noexcept { return stopping_; }
    // It has been stopping for longer than stop_time; everything that can be cut off was cut off.
    bool overdue() const noexcept { return overdue_; }
    // What the next life of the daemon has to know if this one is killed now.
    WriterNumbers::Life life() const noexcept;
    // Meaningful once it has stopped. Its users may go on without this daemon, and come back with
    // what they hold or have read: this is what the next life of the daemon has to know then. Empty
    // if nobody can come back.
    WriterNumbers::Life leaves() const noexcept;
    // Meaningful once it has stopped: which of its data may be lost, as the end of a sentence;
    // empty: none.
    const std::string& loss() const noexcept { return loss_; }

  private:
    void on_volume_changed(RemoteVolume&) override;
    void on_volume_closed(RemoteVolume&) override;
    void on_detached(Device& device) override;
    void on_kernel_detached(KernelDevice& device) override;
    void on_kernel_used(KernelDevice& device) override;
    void warn_of_short_requests() const;
    void on_stop_deadline();
    void flush_then_close();
    void flush();
    void flush_ended(std::error_code error);
    void close_volume();
    void lost(std::string what);
    WriterNumbers::Life beside_noted(const WriterNumbers::Life& life) const noexcept;
    void end_if_done();

    rtrs::Reactor& reactor_;
    NbdSockets& sockets_;
    ClientConfig::Device config_;
    std::uint32_t number_;
    Owner& owner_;
    // What the former life has noted, and the part of it with which this life goes on.
    WriterNumbers::Life noted_;
    WriterNumbers::Life former_;
    std::unique_ptr<RemoteVolume> volume_;
    std::unique_ptr<Device> device_;
    std::unique_ptr<KernelDevice> kernel_;
    rtrs::Timer stop_timer_;
    // The last flush, and the permit that it waits for.
    struct LastFlush final : rtrs::PermitWaiter {
        explicit LastFlush(Mapping& its_mapping);
        Mapping& mapping;
        rtrs::Permit permit;
        rtrs::Timer timer;  // permits are granted from the middle of another one's release
    } last_flush_{*this};
    bool was_open_ = false;
    bool stopping_ = false;
    bool with_the_daemon_ = false;  // it stops because the daemon ends
    bool aborted_ = false;          // NBD clients wait for answers that will never come
    bool may_return_ = false;
    bool had_clients_ = false;  // when the daemon began to end
    bool overdue_ = false;
    bool kernel_cut_ = false;
    bool kernel_gone_ = false;
    bool detached_ = false;
    bool closing_ = false;  // the volume is being closed
    bool volume_closed_ = false;
    std::string loss_;
};

}  // namespace rnbd
