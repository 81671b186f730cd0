// What is behind an rnbd_volume.
//
// OWNER: Session, from rnbd_volume_open() to the end of rnbd_volume_close(), or to that of
// rnbd_session_free(). THREAD: the loop's, but for known(), check() and the error text.
#pragma once

#include <optional>
#include <string>

#include "librnbd/error_text.h"
#include "librnbd/librnbd.h"
#include "librnbd/requests.h"
#include "rnbd/remote_volume.h"

namespace rnbd::library {

class Session;

// What the program's threads may know of a volume; guarded by the loop's lock.
struct VolumeKnown {
    VolumeGeometry geometry;
    std::uint32_t max_io_bytes = 0;
    std::uint32_t queue_depth = 0;
    std::uint64_t losses = 0;  // VolumeLosses::news
    bool ever_open = false;
    bool open = false;
    bool closing = false;
    std::error_code refused;  // the server's answer to the newest open
    std::uint64_t times_refused = 0;
    bool superseded = false;   // refused for ever
    std::error_code given_up;  // by the session, which asks no more
    std::string reason;        // why it is not open
};

class Volume final : public RemoteVolumeHandler {
  public:
    Volume(Session& session, RemoteVolumeOptions options);

    Session& session() noexcept { return session_; }
    RemoteVolume& remote() noexcept { return remote_; }
    const RemoteVolume& remote() const noexcept { return remote_; }
    // With the loop's lock held.
    const VolumeKnown& known() const noexcept { return known_; }
    // Of requests: 0, or a negative errno with the text set. With the loop's lock held.
    int check(const Request& request);
    int check_range(std::uint64_t offset, std::uint64_t bytes);

    // By the program, which has given up its handle.
    void close(rnbd_done_fn done, void* context);
    bool closed_by_program() const noexcept { return closed_by_program_; }
    // With the session.
    void end();
    bool closing() const noexcept { return closing_; }
    void note_given_up(std::error_code reason);
    bool closed() const noexcept { return closed_ && requests == 0; }
    void report_closed() const {
        if (close_done_ != nullptr) close_done_(close_context_, 0);
    }

    // The server did a part of a request, or all of it.
    void answered();
    void request_ended();
    // A part of a request was acknowledged by a cache that was lost.
    void lost_in_part();

    ErrorText error;
    PermitShare share;
    // Accepted by the loop and not finished; extents and those who wait for it too.
    std::uint32_t requests = 0;

  private:
    void on_volume_changed(RemoteVolume& volume) override;
    void on_volume_refused(RemoteVolume& volume) override;
    void on_volume_closed(RemoteVolume& volume) override;
    void tell(int kind) const;
    int check_operation(const Request& request);

    Session& session_;
    VolumeKnown known_;
    std::uint64_t size_told_ = 0;
    bool closing_ = false;
    bool closed_by_program_ = false;
    bool closed_ = false;
    rnbd_done_fn close_done_ = nullptr;
    void* close_context_ = nullptr;
    RemoteVolume remote_;
};

}  // namespace rnbd::library
