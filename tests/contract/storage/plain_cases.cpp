// The storages that anybody can make.
#include "tests/contract/storage/support.h"

namespace rnbd::testing {
namespace {

Case file_case(StorageOptions::Io io, std::uint32_t block) {
    const bool direct = io == StorageOptions::Io::direct;
    const std::string name = std::string("file, ") + (direct ? "direct" : "buffered") +
                             ", blocks of " + std::to_string(block);
    return {name, [io, block, direct, folder = std::make_shared<TemporaryFolder>()] {
                StorageOptions options{.path = folder->file("image"),
                                       .size_bytes = case_size_bytes,
                                       .io = io,
                                       .logical_block_bytes = block};
                std::filesystem::remove(options.path);
                Bench probe;
                if (direct && probe.open(options)) throw Unavailable{probe.last_text};
                return options;
            }};
}

StorageOptions without_path(StorageOptions::Kind kind) {
    return {.kind = kind, .path = {}, .size_bytes = case_size_bytes, .logical_block_bytes = 512};
}

// All ways of waiting at once, short enough for thousands of requests.
Case delayed(Case inner, DelayOptions::When when) {
    using namespace std::chrono_literals;
    inner.name += when == DelayOptions::When::before ? ", late" : ", answered late";
    inner.make = [make = inner.make, when, folder = std::make_shared<TemporaryFolder>()] {
        StorageOptions options = make();
        options.delay = DelayOptions{.read = 20us,
                                     .write = 50us,
                                     .flush = 10us,
                                     .every = 7,
                                     .by = 300us,
                                     .when = when,
                                     .gate = folder->file("gate"),
                                     .gate_operations = DelayOptions::Gate::all,
                                     .gate_count = {}};
        return options;
    };
    return inner;
}

}  // namespace

const std::vector<Case>& cases() {
    using When = DelayOptions::When;
    const Case memory{.name = "memory",
                      .make = [] { return without_path(StorageOptions::Kind::memory); },
                      .persistent = false};
    static const std::vector<Case> all = {
        file_case(StorageOptions::Io::buffered, 512),
        file_case(StorageOptions::Io::buffered, 4096),
        file_case(StorageOptions::Io::direct, 512),
        file_case(StorageOptions::Io::direct, 4096),
        memory,
        {.name = "null",
         .make = [] { return without_path(StorageOptions::Kind::null); },
         .keeps_data = false,
         .persistent = false},
        delayed(file_case(StorageOptions::Io::buffered, 512), When::before),
        delayed(file_case(StorageOptions::Io::buffered, 512), When::after),
        delayed(memory, When::before),
        delayed(memory, When::after),
    };
    return all;
}

}  // namespace rnbd::testing
