// Which export stands for which medium. Two that may be written, with one uuid, would pass for each
// other: with clients, and in the books of writers and caches. So the second one waits. That is how
// a disk looks that is there twice, a clone of a file system that is mounted beside it, or a file
// that was left behind when its content moved and took its uuid along.
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
    // For as long as it is kept. ASSUMES: not longer than these.
    using Claim = std::shared_ptr<const std::string>;  // by whom

    MediumClaims() = default;
    MediumClaims(const MediumClaims&) = delete;
    MediumClaims& operator=(const MediumClaims&) = delete;

    // One export may claim it several times. Refused: the name of the export that has it.
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
