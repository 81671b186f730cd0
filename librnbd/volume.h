// The object behind an rnbd_volume.
//
// OWNER: Session, from rnbd_volume_open() until rnbd_volume_close() or rnbd_session_free() has
// ended. THREAD: the loop's, except for known(), check() and the error text.
#pragma once

#include <string>

#include "librnbd/error_text.h"
#include "librnbd/librnbd.h"
#include "librnbd/requests.h"
#include "rnbd/remote_volume.h"

namespace rnbd::library {

class Session;

// What the program's threads can see of a volume; guarded by the loop's lock.
struct VolumeKnown {
    VolumeGeometry geometry;
    std::uint32_t max_io_bytes = 0;
    std::uint32_t queue_depth = 0;
    std::uint64_t losses = 0;  // VolumeLosses::news
    bool ever_open = false;
    bool open = false;
    bool closing = false;
    std::error_code refused;  // the server's refusal of the newest open; not EAGAIN
    std::uint64_t times_refused = 0;
    bool superseded = false;   // refused for ever
    std::error_code given_up;  // the session has given up and asks the server no more
    std::string reason;        // why it is not open
};

class Volume final : public RemoteVolumeHandler {
  public:
    Volume(Session& session, RemoteVolumeOptions options);

    Session& session() noexcept { return session_; }
    RemoteVolume& remote() noexcept { return remote_; }
    const RemoteVolume& remote() const noexcept { return remote_; }
    // Called with the loop's lock held.
    const VolumeKnown& known() const noexcept { return known_; }
    // Checks a request: returns 0, or a negative errno and sets the text. Called with the loop's
    // lock held.
    int check(const Request& request);
    int check_range(std::uint64_t offset, std::uint64_t bytes);

    // The program closes the volume, and has given up its handle.
    void close(rnbd_done_fn done, void* context);
    bool closed_by_program() const noexcept { return closed_by_program_; }
    // The volume closes together with the session.
    void end();
    bool closing() const noexcept { return closing_; }
    void note_given_up(std::error_code reason);
    bool closed() const noexcept { return closed_ && requests == 0; }
    void report_closed() const {
        if (close_done_ != nullptr) close_done_(close_context_, 0);
    }

    // A part of a request, or all of it, was answered.
    void answered();
    void request_ended();
    // A part of a request was acknowledged by a cache that was lost since.
    void lost_in_part();

    ErrorText error;
    PermitShare share;
    // Requests that the loop has accepted and not finished, including extents requests and calls
    // that wait for the volume.
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
