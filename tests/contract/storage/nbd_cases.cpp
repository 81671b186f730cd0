// Storages on NBD servers of others.
#include "tests/contract/storage/nbd_server.h"

namespace rnbd::testing {
namespace {

StorageOptions options_for(const ServedFile& served) {
    return {.kind = StorageOptions::Kind::nbd, .path = {}, .uri = served.server->uri()};
}

// A fresh server and file for each test; the one before is ended.
Case nbd_case(std::string name, std::vector<std::string> words, bool discard_zeroes) {
    auto current = std::make_shared<std::unique_ptr<ServedFile>>();
    return {.name = std::move(name),
            .make =
                [words = std::move(words), current] {
                    current->reset();
                    *current = std::make_unique<ServedFile>(words);
                    return options_for(**current);
                },
            .discard_zeroes = discard_zeroes,
            .keeps_epoch = false};
}

}  // namespace

const std::vector<Case>& cases() {
    static const std::vector<Case> all = {
        nbd_case("nbdkit file", {"nbdkit", "-f", "-U", "SOCKET", "file", "IMAGE"}, true),
        nbd_case("nbdkit without zeroes, FUA by a filter",
                 {"nbdkit", "-f", "-U", "SOCKET", "--filter=nozero", "--filter=fua", "file",
                  "IMAGE", "fuamode=emulate"},
                 true),
        nbd_case("nbdkit with small requests",
                 {"nbdkit", "-f", "-U", "SOCKET", "--filter=blocksize-policy", "file", "IMAGE",
                  "blocksize-minimum=512", "blocksize-preferred=4096", "blocksize-maximum=65536",
                  "blocksize-error-policy=error"},
                 true),
        nbd_case("nbdkit with small requests, without zeroes",
                 {"nbdkit", "-f", "-U", "SOCKET", "--filter=nozero", "--filter=blocksize-policy",
                  "file", "IMAGE", "blocksize-minimum=512", "blocksize-preferred=4096",
                  "blocksize-maximum=65536", "blocksize-error-policy=error"},
                 true),
        nbd_case("qemu-nbd raw",
                 {"qemu-nbd", "-f", "raw", "-t", "-k", "SOCKET", "--discard=unmap", "IMAGE"},
                 false),
    };
    return all;
}

}  // namespace rnbd::testing
