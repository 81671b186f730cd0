// Which objects are put back when a plan is rolled back: those that the plan has changed. What
// rnbdctl has done since then stays, to these objects and to all others. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/reload/config_change.h"

namespace rnbd {

class Rollback {
  public:
    // changes: those of the plan, with their results. since: what runs now, compared with the
    // plan's "wanted" as both "wanted" and "before" (daemon/reload/config_change.h).
    Rollback(const std::vector<ConfigChange>& changes, const std::vector<ConfigChange>& since);

    // The object stays as it is now, although the plan has changed it.
    void keep(const std::string& object, const std::string& name);
    // Whether rnbdctl has changed it, or made or removed it, since.
    bool was_touched(const std::string& object, const std::string& name) const;
    bool is_put_back(const std::string& object, const std::string& name) const;
    // The objects, as "export vol1", that the plan has changed and that stay nevertheless.
    std::vector<std::string> kept() const;

    // The objects of one kind as they will be when the plan is taken back. name(object) ->
    // std::string; put_back(now, was) -> object: for an object that exists now and existed before.
    template <typename Object, typename Name, typename PutBack>
    std::vector<Object> objects(const std::string& object, const std::vector<Object>& now,
                                const std::vector<Object>& was, const Name& name,
                                const PutBack& put_back) const {
        std::unordered_map<std::string, const Object*> former;
        for (const Object& one : was) former.emplace(name(one), &one);
        std::set<std::string> seen;
        std::vector<Object> result;
        for (const Object& one : now) {
            seen.insert(name(one));
            const auto found = former.find(name(one));
            if (!is_put_back(object, name(one)))
                result.push_back(one);
            else if (found != former.end())
                result.push_back(put_back(one, *found->second));
        }
        for (const Object& one : was) {
            if (!seen.contains(name(one)) && is_put_back(object, name(one))) result.push_back(one);
        }
        return result;
    }

  private:
    using Id = std::pair<std::string, std::string>;
    // lost: the object was to be replaced and does not exist now; rnbdctl did not remove it.
    enum class Course : std::uint8_t { done, failed, half_done, lost };
    std::map<Id, Course> changed_;
    std::set<Id> touched_;
};

}  // namespace rnbd
