// One mapped device: a remote volume, the NBD device on it, and the kernel's device on that.
//
// OWNER: Client. THREAD: the reactor's (rtrs/reactor.h).
// Life: start() -> serves -> stop() -> on_mapping_stopped. What stop() does, in order: the kernel's
// device is flushed and detached; the device leaves its sockets and its connections end after what
// was received is answered (each after stop_time: at once); the volume is flushed and closed at the
// server.
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
        // What a next life of the daemon has to know of it may be another now.
        virtual void on_mapping_changed(Mapping& mapping) = 0;
        // The mapping may be destroyed from inside this call.
        virtual void on_mapping_stopped(Mapping& mapping) = 0;
        // After stop(Use::refuse): the kernel's device is used, so it goes on.
        virtual void on_mapping_used(Mapping& mapping) = 0;
        // It stops, and is kept by nothing but what its server does not answer.
        virtual void on_mapping_overdue(Mapping& mapping) = 0;

      protected:
        ~Owner() = default;
    };

    // number: see below. former: life of this daemon.
    Mapping(rtrs::Reactor& reactor, NbdSockets& sockets, RemoteSession& session,
            PermitShares& shares, ClientConfig::Device config, std::uint32_t number,
            const WriterNumbers::Life& former, Owner& owner);
    ~Mapping();  // ASSUMES: on_mapping_stopped was delivered
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    // Serves it. On failure (one line that names the address) it is stopping already. in_use:
    // waits blocks for at most in_use_patience per address.
    std::expected<void, std::string> start(InUse in_use);
    // use: of the kernel's device.
    void stop(KernelNbd::Use use);

    const ClientConfig::Device& config() const noexcept { return config_; }
    // As in the configuration, but with the ports that the system chose for port 0.
    std::vector<std::string> nbd_addresses() const;
    // The N of its attributes in block/rnbdN: the lowest that was free.
    std::uint32_t number() const noexcept { return number_; }
    RemoteVolume& volume() noexcept { return *volume_; }
    Device& device() noexcept { return *device_; }
    std::size_t connections() const noexcept { return sockets_.connections(*device_); }
    // Null: it is not meant for the kernel.
    const KernelDevice* kernel() const noexcept { return kernel_.get(); }
    bool stopping() const noexcept { return stopping_; }
    // On its way to on_mapping_stopped, longer than stop_time: all that could be cut off was.
    bool overdue() const noexcept { return overdue_; }
    // What a next life of the daemon has to know if this one is killed now.
    WriterNumbers::Life life() const noexcept;
    // Once it has stopped: who uses it may go on without this daemon, and come back with what it
    // holds, or has read. What its next life has to know, if it comes; nothing if nobody can.
    WriterNumbers::Life leaves() const noexcept;
    // Once it has stopped: what of its data may be lost, the end of a sentence; empty: nothing.
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
    // What was noted by the life before, and what of it this one goes on with.
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
        rtrs::Timer timer;  // permits come from the middle of somebody's release
    } last_flush_{*this};
    bool was_open_ = false;
    bool stopping_ = false;
    bool with_the_daemon_ = false;  // is the reason for that
    bool aborted_ = false;          // NBD clients wait for answers that never come
    bool may_return_ = false;
    bool had_clients_ = false;  // when the daemon began to end
    bool overdue_ = false;
    bool kernel_cut_ = false;
    bool kernel_gone_ = false;
    bool detached_ = false;
    bool closing_ = false;  // the volume
    bool volume_closed_ = false;
    std::string loss_;
};

}  // namespace rnbd
