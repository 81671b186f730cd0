// What a book has of each medium: of all that are exported, and of the newest of those that were.
// By the medium and not by the export's name: the same file may be exported under another name
// meanwhile, and another one under its name.
//
// THREAD: any one.
#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "rnbd/medium_id.h"

namespace rnbd {

// What books call a medium: its uuid; of one that has none, the name of the export that stands for
// it. Neither passes for the other: no export's name begins with '/'.
inline std::string medium_name(const MediumId& medium, const std::string& export_name) {
    const std::string uuid = to_text(medium.uuid);
    return uuid.empty() ? export_name : "/uuid/" + uuid;
}

// Record: one that is made of nothing is empty(), and need not stay.
template <typename Record>
class MediumRecords {
  public:
    // So many stay that nobody holds; beyond that, the one that was let go of first is forgotten.
    static constexpr std::size_t left_max = 4096;

    MediumRecords() = default;
    MediumRecords(const MediumRecords&) = delete;
    MediumRecords& operator=(const MediumRecords&) = delete;

    // For as long as the medium is exported, or somebody may still say something of it. Shared with
    // others who hold it. ASSUMES: it outlives all of them.
    std::shared_ptr<Record> hold(const std::string& medium) {
        const Place place = place_of(medium);
        if (auto held = place->held.lock()) return held;
        ++held_;
        std::shared_ptr<Record> held(&place->record, [this, place](Record*) { let_go(place); });
        place->held = held;
        return held;
    }
    // Made if there is none. Stays in place until it is let go of.
    Record& of(const std::string& medium) { return place_of(medium)->record; }
    // Null: there is none.
    Record* find(const std::string& medium) {
        const auto found = by_name_.find(medium);
        return found == by_name_.end() ? nullptr : &found->second->record;
    }
    // What is known of another one, which nobody holds, is this one's, unless that is known itself.
    // Whether it was so.
    bool take_over(const std::string& medium, const std::string& from) {
        const auto former = by_name_.find(from);
        if (former == by_name_.end() || medium == from) return false;
        const Place old = former->second;
        Record& record = of(medium);
        if (!old->held.expired() || old->record.empty() || !record.empty()) return false;
        record = std::exchange(old->record, Record{});
        forget(old);
        return true;
    }
    // All are empty. Those that are held stay in place.
    void clear() {
        for (Place place = all_.begin(); place != all_.end();) {
            const Place next = std::next(place);
            place->record = Record{};
            if (place->held.expired()) forget(place);
            place = next;
        }
    }
    // Those that nobody holds first, in the order in which they were let go of.
    template <typename Visit>
    void for_each(Visit visit) const {
        for (const bool is_held : {false, true}) {
            for (const Node& node : all_) {
                if (node.held.expired() != is_held) visit(node.medium, node.record);
            }
        }
    }

  private:
    struct Node {
        std::string medium;
        Record record{};
        std::weak_ptr<Record> held{};
    };
    using Place = typename std::list<Node>::iterator;

    Place place_of(const std::string& medium) {
        const auto [found, is_new] = by_name_.try_emplace(medium);
        if (is_new) found->second = all_.insert(all_.end(), Node{.medium = medium});
        return found->second;
    }
    void let_go(Place place) {
        --held_;
        if (place->record.empty()) return forget(place);
        all_.splice(all_.end(), all_, place);
        for (Place oldest = all_.begin(); all_.size() - held_ > left_max;) {
            const Place next = std::next(oldest);
            if (oldest->held.expired()) forget(oldest);
            oldest = next;
        }
    }
    void forget(Place place) {
        by_name_.erase(place->medium);
        all_.erase(place);
    }

    std::list<Node> all_;
    std::unordered_map<std::string, Place> by_name_;
    std::size_t held_ = 0;
};

}  // namespace rnbd
