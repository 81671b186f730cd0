// Which file or device a session's volumes were opened on. A volume whose export was taken away,
// and stands for another medium when it is opened again, must not go on: what its user has read,
// and what it holds, is of the former. It is mapped anew, as another writer.
//
// OWNER: a session of Target. Pure. THREAD: any one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rnbd-server/writers.h"

namespace rnbd {

class KnownMedia {
  public:
    // writer: 0 for who only reads. Those are known by name, which a volume that is mapped anew
    // has, too: is_another() is asked again then, after forget().
    struct Volume {
        const std::string& name;
        Writers::Id writer = 0;
    };
    // So many are known, the newest.
    static constexpr std::size_t known_max = 4096;

    // medium: as StorageGeometry has it.
    bool is_another(const Volume& volume, std::uint64_t medium) const noexcept;
    void opened(const Volume& volume, std::uint64_t medium);
    void forget(const Volume& volume) noexcept;

  private:
    struct One {
        std::string name;
        Writers::Id writer = 0;
        std::uint64_t medium = 0;
        bool is(const Volume& volume) const noexcept {
            return writer == volume.writer && (writer != 0 || name == volume.name);
        }
    };
    std::vector<One> known_;
};

}  // namespace rnbd
