// The records that a state file has of media: of all that are exported, and of the newest of those
// that were exported before. They are kept by medium and not by the name of the export, because the
// same file may meanwhile be exported under another name, and another file under its name.
//
// THREAD: any; one at a time.
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

// The name of a medium in the state files: its uuid, or if it has none, the name of the export that
// stands for it. The two cannot be confused, because no name of an export begins with '/'.
inline std::string medium_name(const MediumId& medium, const std::string& export_name) {
    const std::string uuid = to_text(medium.uuid);
    return uuid.empty() ? export_name : "/uuid/" + uuid;
}

// Record: default-constructed it is empty(); empty records need not be kept.
template <typename Record>
class MediumRecords {
  public:
    // This many records that nobody holds are kept; beyond that, the one that was released first is
    // forgotten.
    static constexpr std::size_t left_max = 4096;

    MediumRecords() = default;
    MediumRecords(const MediumRecords&) = delete;
    MediumRecords& operator=(const MediumRecords&) = delete;

    // Held for as long as the medium is exported, or somebody may still change its record. All who
    // hold it share one record.
    // ASSUMES: this outlives all of them.
    std::shared_ptr<Record> hold(const std::string& medium) {
        const Place place = place_of(medium);
        if (auto held = place->held.lock()) return held;
        ++held_;
        std::shared_ptr<Record> held(&place->record, [this, place](Record*) { let_go(place); });
        place->held = held;
        return held;
    }
    // The record is made if there is none. It stays in place until it is released.
    Record& of(const std::string& medium) { return place_of(medium)->record; }
    // Null: there is no record.
    Record* find(const std::string& medium) {
        const auto found = by_name_.find(medium);
        return found == by_name_.end() ? nullptr : &found->second->record;
    }
    // Moves the record of `from` to `medium`, if nobody holds `from`, its record is not empty, and
    // the record of `medium` is empty. Returns whether it did.
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
    // Makes all records empty. Those that are held stay in place.
    void clear() {
        for (Place place = all_.begin(); place != all_.end();) {
            const Place next = std::next(place);
            place->record = Record{};
            if (place->held.expired()) forget(place);
            place = next;
        }
    }
    // Visits first the records that nobody holds, in the order in which they were released.
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
