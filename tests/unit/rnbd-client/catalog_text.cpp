// What rnbdctl discover is answered, compared with the JSON library's reading of it.
#include "rnbd-client/catalog_text.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "daemon/control/protocol.h"

using namespace rnbd;
using nlohmann::json;

TEST_CASE("catalog text: the members of the answer") {
    const std::vector<CatalogEntry> entries{
        {.name = "vol", .size_bytes = 1ull << 63, .block_bytes = 4096, .in_use = 3},
        {.name = "it's {0}, \"a\\b\"\n\x01", .size_bytes = 0, .writable = true, .waiting = true},
        {.name = "gr\xc3\xbc\xc3\x9f", .block_bytes = 512},
        {.name = "no \xff UTF-8", .block_bytes = 512}};
    const json parsed = json::parse(catalog_text("host-a \"b\"", entries));
    const json expected = {{"server", "host-a \"b\""},
                           {"exports",
                            {{{"name", "vol"},
                              {"size_bytes", 1ull << 63},
                              {"block_size", 4096},
                              {"access", "ro"},
                              {"state", "ready"},
                              {"in_use", 3}},
                             {{"name", "it's {0}, \"a\\b\"\n\x01"},
                              {"size_bytes", 0},
                              {"block_size", 0},
                              {"access", "rw"},
                              {"state", "waiting"},
                              {"in_use", 0}},
                             {{"name", "gr\xc3\xbc\xc3\x9f"},
                              {"size_bytes", 0},
                              {"block_size", 512},
                              {"access", "ro"},
                              {"state", "ready"},
                              {"in_use", 0}},
                             {{"name", "no \xef\xbf\xbd UTF-8"},
                              {"size_bytes", 0},
                              {"block_size", 512},
                              {"access", "ro"},
                              {"state", "ready"},
                              {"in_use", 0}}}}};
    CHECK(parsed == expected);
}

TEST_CASE("catalog text: none, and the whole answer") {
    const std::string text = catalog_text("s", {});
    CHECK(json::parse(text) == json{{"server", "s"}, {"exports", json::array()}});
    CHECK(json::parse(emit_control_result_text(text)) ==
          json::parse(emit_control_result(json::parse(text))));
}
