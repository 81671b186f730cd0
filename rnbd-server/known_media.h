// Which file or device a session's volumes were opened on. A volume whose export was taken away,
// and stands for another medium when it is opened again, must not go on: what its user has read,
// and what it holds, is of the former. It is mapped anew, with another number.
//
// OWNER: a session of Target. Pure. THREAD: any one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rnbd-server/writers.h"

namespace rnbd {

class KnownMedia {
  public:
    // So many volumes are known, the newest.
    static constexpr std::size_t known_max = 4096;

    // volume: the number that OPEN says, the same for as long as it is mapped; 0: not known.
    // medium: as StorageGeometry has it.
    bool is_another(Writers::Id volume, std::uint64_t medium) const noexcept;
    void opened(Writers::Id volume, std::uint64_t medium);
    void forget(Writers::Id volume) noexcept;

  private:
    struct One {
        Writers::Id volume = 0;
        std::uint64_t medium = 0;
    };
    std::vector<One> known_;
};

}  // namespace rnbd
