// Bugs that are planted (rtrs/base/planted.h) and how soon each must be found.
#pragma once

#include <string>

namespace failover {

// False: this program has no such bug to plant.
bool plant(const std::string& name);
// Plants each bug in turn; true if each is found within its number of seeds.
bool find_all_planted_bugs(unsigned jobs);

}  // namespace failover
