// What one run found wrong: a few words that stay the same from seed to seed, and the particulars.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace failover {

struct Finding {
    std::string what;         // "a stale write landed"
    std::string particulars;  // "volume 1 block 3: 7 over 9, at 12.345 s"
};

class Findings {
  public:
    // Only the first few are kept: what follows is mostly their consequence.
    void add(std::string_view what, std::string particulars) {
        if (list_.size() < kept_max) list_.push_back({std::string(what), std::move(particulars)});
    }
    bool empty() const noexcept { return list_.empty(); }
    const std::vector<Finding>& list() const noexcept { return list_; }

  private:
    static constexpr std::size_t kept_max = 8;
    std::vector<Finding> list_;
};

}  // namespace failover
