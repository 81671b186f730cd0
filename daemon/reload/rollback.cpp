#include "daemon/reload/rollback.h"

namespace rnbd {

Rollback::Rollback(const std::vector<ConfigChange>& changes,
                   const std::vector<ConfigChange>& since) {
    using Kind = ConfigChange::Kind;
    for (const ConfigChange& change : changes) {
        if (!change.acts()) continue;
        changed_[{change.object, change.name}] = change.failure.empty()          ? Course::done
                                                 : change.kind == Kind::replaced ? Course::half_done
                                                                                 : Course::failed;
    }
    for (const ConfigChange& now : since) {
        const bool made = now.kind == Kind::unchanged && !now.drift.empty();
        if (!now.acts() && !made) continue;
        touched_.insert({now.object, now.name});
        const auto ours = changed_.find({now.object, now.name});
        // It would have to be added: it is not there.
        if (now.kind == Kind::added && ours != changed_.end() && ours->second == Course::half_done)
            ours->second = Course::lost;
    }
}

void Rollback::keep(const std::string& object, const std::string& name) {
    touched_.insert({object, name});
}

bool Rollback::was_touched(const std::string& object, const std::string& name) const {
    return touched_.contains({object, name});
}

bool Rollback::is_put_back(const std::string& object, const std::string& name) const {
    const auto ours = changed_.find({object, name});
    if (ours == changed_.end()) return false;
    return ours->second == Course::lost || !was_touched(object, name);
}

std::vector<std::string> Rollback::kept() const {
    std::vector<std::string> names;
    for (const auto& [id, course] : changed_) {
        if (course == Course::done && touched_.contains(id))
            names.push_back(id.first + " " + id.second);
    }
    return names;
}

}  // namespace rnbd
