// A file with the numbers by which servers know the writers of volumes (RemoteVolume::writer()), so
// that a daemon that was killed comes back as the same writer. Its NBD clients, or the kernel, may
// still be there with the writes that they held. If another machine has written meanwhile, the
// server has to recognise them.
//
// Three things are kept with each number. The epoch of the server's cache that may have writes
// which were acknowledged and not flushed, so that the users are told if that cache is lost
// meanwhile. Whether something was lost of which the users were not told. And the medium that the
// users know, also for volumes that are only read.
//
// A volume that is unmapped holds nothing, so its number is forgotten. The same happens when the
// daemon ends in order, if no user can have been left with something, and when the machine boots.
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
    // Loads the numbers of former lives. A file that is absent or of another boot counts as empty.
    // ERRORS: those of reading the file, which has to be a regular one (ELOOP, EBADMSG) and this
    // user's or root's (EPERM); EBADMSG (it does not have the right form; the lines that have it
    // were taken).
    std::error_code load();
    struct Life {
        std::uint64_t number = 0;  // 0: none, the volume is only read
        std::uint64_t epoch = 0;   // as RemoteVolumeOptions::epoch
        MediumId medium{};         // as RemoteVolumeOptions::medium
        bool untold_loss = false;  // as RemoteVolumeOptions::untold_loss
        bool operator==(const Life&) const = default;
    };
    Life former(const std::string& session, const std::string& volume) const;
    // These return whether write() has something to do.
    bool keep(const std::string& session, const std::string& volume, const Life& life);
    bool forget(const std::string& session, const std::string& volume);
    // Writes the file, or removes it if there is nothing to keep.
    // ERRORS: those of writing or removing the file.
    std::error_code write() const;

  private:
    using Numbers = std::map<std::pair<std::string, std::string>, Life>;

    std::string path_;
    Numbers numbers_;
};

}  // namespace rnbd
