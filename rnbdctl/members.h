// Members of a document as text. Every function tolerates absence and wrong types: empty text then.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rnbd::members {

using nlohmann::json;

// null if it is absent.
const json& member(const json& object, const char* key);
// The elements of an array member; none if it is no array.
const json& elements(const json& object, const char* key);
// Text (safe for a terminal), yes or no, an integer.
std::string word(const json& object, const char* key);
bool unsigned_number(const json& value);
// As rnbdctl/units.h has them.
std::string size(const json& object, const char* key);
std::string count(const json& object, const char* key);
std::string age(const json& object, const char* key);
std::string short_age(const json& object, const char* key);
std::string latency(const json& object, const char* key);
// What happens to a path next, if nothing else happens before: "attempt in 200 ms", "given up in
// 3.1 s" (what is being tried), "dead in 4.2 s if silent".
std::string next(const json& path);
// Of a device or an export; nothing for one that was never open.
std::string volume_size(const json& item);
std::string block_size(const json& item);
// "waiting (no such file)"
std::string state(const json& object);
std::string joined(const json& array, const std::function<std::string(const json&)>& text);
// "-" for nothing.
std::string dash(std::string text);

}  // namespace rnbd::members
