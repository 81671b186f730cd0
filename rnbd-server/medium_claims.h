// Which export stands for which medium. Two writable exports with the same uuid would be mistaken
// for each other, by clients and in the state files (rnbd-server/state). So the second one waits.
// It can happen with a disk that is visible twice, with a clone of a file system that is mounted
// beside the original, or with a file that was left behind when its content was moved together with
// its uuid.
//
// OWNER: Target. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <expected>
#include <map>
#include <memory>
#include <string>

#include "rnbd/medium_id.h"

namespace rnbd {

class MediumClaims {
  public:
    // A claim is in force for as long as the object is kept; its value is the name of the export.
    // ASSUMES: it does not outlive the MediumClaims.
    using Claim = std::shared_ptr<const std::string>;

    MediumClaims() = default;
    MediumClaims(const MediumClaims&) = delete;
    MediumClaims& operator=(const MediumClaims&) = delete;

    // An export may claim the same uuid several times. If another export has claimed it, the claim
    // is refused with the name of that export.
    std::expected<Claim, std::string> claim(const Uuid& uuid, const std::string& export_name) {
        const std::string key = to_text(uuid);
        std::weak_ptr<const std::string>& place = claims_[key];
        if (Claim claimed = place.lock()) {
            if (*claimed != export_name) return std::unexpected(*claimed);
            return claimed;
        }
        Claim made(new std::string(export_name), [this, key](const std::string* name) {
            claims_.erase(key);
            delete name;
        });
        place = made;
        return made;
    }

  private:
    std::map<std::string, std::weak_ptr<const std::string>> claims_;
};

}  // namespace rnbd
