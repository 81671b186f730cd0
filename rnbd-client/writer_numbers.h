// The numbers by which servers know who may hold writes for a volume (RemoteVolume::writer()), in a
// file, so that a daemon that was killed comes back as the same writer. Its NBD clients, or the
// kernel, may still be there with what they held; if another machine has written meanwhile, the
// server has to recognise them.
//
// With each is the epoch of the server's cache that may have what was acknowledged and not flushed,
// so that they hear of it if that cache is lost meanwhile; whether something was lost of which they
// have not heard; and the medium that they know: that of volumes that are only read, too.
//
// What is unmapped holds nothing, and its number is forgotten; so it is at an end of the daemon in
// order, if nobody may have been left with something. So are those of another boot of the machine.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "rnbd/medium_id.h"

namespace rnbd {

class WriterNumbers {
  public:
    explicit WriterNumbers(std::string path) : path_(std::move(path)) {}

    const std::string& path() const noexcept { return path_; }
    // Those of former lives. A file that is absent or of another boot is an empty one. ERRORS: of
    // reading it; EBADMSG (it is not of this form; lines that are were taken).
    std::error_code load();
    struct Life {
        std::uint64_t number = 0;  // 0: none, it only reads
        std::uint64_t epoch = 0;   // as RemoteVolumeOptions::epoch
        MediumId medium{};         // likewise
        bool untold_loss = false;  // likewise
        bool operator==(const Life&) const = default;
    };
    Life former(const std::string& session, const std::string& volume) const;
    // These say whether write() has something to do.
    bool keep(const std::string& session, const std::string& volume, const Life& life);
    bool forget(const std::string& session, const std::string& volume);
    // ERRORS: of writing the file; if there is nothing to keep, of removing it.
    std::error_code write() const;

  private:
    using Numbers = std::map<std::pair<std::string, std::string>, Life>;

    std::string path_;
    Numbers numbers_;
};

}  // namespace rnbd
