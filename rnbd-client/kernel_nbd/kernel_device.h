// A volume as a block device of the kernel: /dev/nbdN, over socket pairs.
//
// | State     | On                            | Goes to   | Does                                  |
// | --------- | ----------------------------- | --------- | ------------------------------------- |
// | waiting   | the volume is open            | attaching | socket pairs, the kernel takes theirs |
// | attaching | the kernel has the device     | attaching | serves our ends, settles the rest     |
// | attaching | all is settled                | attached  |                                       |
// | attaching | the kernel refuses            | failed    | tries again later                     |
// | failed    | the pause is over             | attaching | as from waiting                       |
// | attached  | the volume has another size   | attached  | tells the kernel                      |
// | attached  | the connections ended         | failed    | somebody has detached it              |
// | any       | stop()                        | detaching | flushes and detaches on a thread      |
// | detaching | it is used, and may stay      | attached  | on_kernel_used                        |
// | detaching | no thread to ask the kernel   | detaching | tries again later                     |
// | detaching | the kernel has let go         | detached  | on_kernel_detached                    |
// | any       | cut(), it may be used         | attached, | as stop() was told: it stays, or the  |
// |           |                               | detached  | kernel keeps it                       |
// | any       | cut()                         | detached  | the kernel lets go, or is left behind |
//
// A kernel that does not answer is shown in the status; nothing else waits for it.
//
// OWNER: Mapping. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rnbd-client/device.h"
#include "rnbd-client/kernel_nbd/kernel_call.h"
#include "rnbd-client/kernel_nbd/kernel_nbd.h"
#include "rnbd-client/nbd/connection.h"

namespace rnbd {

struct KernelDeviceOptions {
    std::string identifier;              // backend_identifier()
    std::optional<std::uint32_t> index;  // none: any free device
    std::uint32_t connections = 1;       // 1..16
    bool takes_over = true;              // as KernelBinding::takes_over
    // If the kernel is silent for longer than this, reason() reports it as a fault.
    rtrs::Duration deadline = std::chrono::seconds(20);
    // The delay between attempts; it doubles each time.
    rtrs::Duration retry_min = std::chrono::seconds(1);
    rtrs::Duration retry_max = std::chrono::seconds(30);
};

class KernelDevice final : private NbdConnection::Owner {
  public:
    enum class State : std::uint8_t { waiting, attaching, attached, failed, detaching, detached };

    class Handler {
      public:
        // After stop(): the kernel does not have the device any more, or was left behind with it.
        virtual void on_kernel_detached(KernelDevice& device) = 0;
        // After stop(Use::refuse): the device stays attached. If it is not known to be in use,
        // reason() says why.
        virtual void on_kernel_used(KernelDevice& device) = 0;

      protected:
        ~Handler() = default;
    };

    // device, handler: outlive this.
    KernelDevice(NbdConnection::Environment environment, std::shared_ptr<KernelNbd> kernel,
                 Device& device, KernelDeviceOptions options, Handler& handler);
    ~KernelDevice();  // ASSUMES: on_kernel_detached was delivered, or never started
    KernelDevice(const KernelDevice&) = delete;
    KernelDevice& operator=(const KernelDevice&) = delete;

    // The volume's state or geometry may have changed.
    void update();
    // The handler is called in this call or later. A second call has an effect only if its use
    // comes after that of the first one in the order of KernelNbd::Use.
    void stop(KernelNbd::Use use);
    // The time for stop() is over: requests that are not answered fail, and the kernel gets a last
    // period to let go. A device that may be in use stays, or is left behind, as stop() was told.
    // It is cut off nevertheless if stop() was told Use::ignore, or if it hangs although it was
    // left behind.
    void cut();

    State state() const noexcept { return state_; }
    // One line; empty if there is nothing to explain.
    const std::string& reason() const noexcept { return reason_; }
    rtrs::Instant since() const noexcept { return since_; }
    // After stop(Use::leave): the device is in use, and the kernel keeps it for a while.
    bool left() const noexcept { return left_; }
    // "/dev/nbd0" if the kernel has the device.
    std::string path() const;
    // Once it is detached: why writes of its users may be lost; empty: they are not lost.
    const std::string& loss() const noexcept { return loss_; }
    // Who uses it, as KernelNbd::use_of() says.
    std::string use() const;
    const KernelDeviceOptions& options() const noexcept { return options_; }
    std::size_t connections() const noexcept { return connections_.size(); }

  private:
    void on_connection_closed(NbdConnection& connection) override;
    void set_state(State state, std::string reason);
    bool ready() const noexcept;
    KernelBinding binding() const;
    class Attempt;
    void attach();
    void connected(Attempt& attempt);
    void attached(std::expected<void, std::string> result);
    void go_on();
    void failed(std::string reason);
    void abort_connections(std::string_view why);
    void serve(const std::vector<int>& sockets);
    void resize_if_needed();
    void detach();
    void detach_ended(std::expected<KernelNbd::Detached, std::string> result);
    void stay(std::string reason);
    void leave(std::string_view why);
    void let_go();
    void end_if_done();
    bool awaits_last_answers();
    void note_cut();
    void give_up();
    bool run(std::function<KernelCall::Report()> work);
    void call_ended();
    void on_deadline();
    void retry();

    NbdConnection::Environment environment_;
    std::shared_ptr<KernelNbd> kernel_;
    Device& device_;
    const KernelDeviceOptions options_;
    Handler& handler_;
    NbdExports exports_;
    State state_ = State::waiting;
    std::string reason_;
    rtrs::Instant since_{};
    std::optional<std::uint32_t> index_;
    std::uint64_t kernel_size_bytes_ = 0;
    std::optional<KernelNbd::Use> stopping_;
    bool let_go_ = false;  // nothing more is asked of the kernel
    bool left_ = false;    // the kernel keeps the device
    bool cut_ = false;     // the kernel was told to cut it off
    // Left, without connections: until then the kernel may take the last answers from them.
    std::optional<rtrs::Instant> last_answers_until_;
    bool was_attached_ = false;
    std::string loss_;
    rtrs::Duration pause_;
    std::vector<std::unique_ptr<NbdConnection>> connections_;
    KernelCall call_;
    KernelCall cut_call_;
    rtrs::Timer deadline_;
    rtrs::Timer retry_;
};

const char* to_string(KernelDevice::State state) noexcept;

}  // namespace rnbd
