// The answer of rnbdctl discover: what a server says about its exports, as JSON.
//
// Written entry by entry: a document of JSON values for tens of thousands of exports takes the
// loop, and all devices with it, many times as long, and hundreds of megabytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rnbd/catalog.h"

namespace rnbd {

// An object with the members server and exports. Bytes of names that are not UTF-8 are replaced.
std::string catalog_text(std::string_view server, const std::vector<CatalogEntry>& entries);

}  // namespace rnbd
