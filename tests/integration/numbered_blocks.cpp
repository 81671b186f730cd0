// A judge of a block device: writes numbered blocks over NBD, reads them back, and says how long
// the longest I/O took. Independent of our own code: libnbd is the other side.
//
//   numbered_blocks URI [--blocks N] [--block-size BYTES] [--depth N] [--reads PERCENT]
//                       [--seconds S] [--seed N]
//
// No block has two requests in flight, so each read has exactly one right answer: the number that
// was acknowledged last. After a write that failed it may also be that write's.
// Standard input: "mark" prints the figures since the last mark as one line of JSON; "stop", the
// end of the input or the end of --seconds reads every block once more and prints the last line.
// Exit status: 0, or 1 if a request failed or a block was not what it had to be.
#include <fmt/format.h>
#include <libnbd.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
    std::string uri;
    std::uint64_t blocks = 4096;
    std::uint32_t block_bytes = 4096;
    std::uint32_t depth = 32;
    std::uint32_t reads_percent = 30;
    double seconds = 1e9;
    std::uint64_t seed = 1;
};

[[noreturn]] void die(const std::string& what) {
    fmt::print(stderr, "numbered_blocks: {}\n", what);
    std::exit(2);
}

double milliseconds(Clock::duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
}

// What a block has to be: the newest acknowledged number, or one of writes that failed after it.
struct Block {
    std::uint64_t number = 0;
    std::vector<std::uint64_t> uncertain;
    bool busy = false;
};

// Since the last mark.
struct Figures {
    std::uint64_t reads = 0, writes = 0;
    Clock::duration longest{};  // of one request
    Clock::duration gap{};      // between two answers
};

class Judge {
  public:
    explicit Judge(Options options);
    ~Judge() { nbd_close(handle_); }
    int run();

  private:
    enum class Kind : std::uint8_t { read, write };
    struct Slot {
        Judge* judge = nullptr;
        Kind kind = Kind::read;
        std::uint64_t block = 0;
        std::uint64_t number = 0;
        Clock::time_point started;
        std::vector<std::uint64_t> words;
    };

    void start(Slot& slot, Kind kind, std::uint64_t block);
    void start_random(Slot& slot);
    void finished(Slot& slot, int error);
    void check(const Slot& slot);
    void fill(Slot& slot) const;
    std::uint64_t word(std::uint64_t block, std::uint64_t number, std::size_t i) const;
    bool right(const Slot& slot, std::uint64_t number) const;
    void turn();
    void take_input();
    void read_everything();
    void print(const char* event);

    Options options_;
    nbd_handle* handle_;
    std::vector<Block> blocks_;
    std::deque<Slot> slots_;
    std::vector<Slot*> idle_;
    std::mt19937_64 random_;
    std::uint64_t next_number_ = 1;
    std::uint64_t errors_ = 0, mismatches_ = 0;
    Figures figures_;
    Clock::time_point marked_ = Clock::now(), last_answer_ = Clock::now();
    bool stopping_ = false;
    std::string input_;
};

Judge::Judge(Options options)
    : options_(std::move(options)),
      handle_(nbd_create()),
      blocks_(options_.blocks),
      random_(options_.seed) {
    if (handle_ == nullptr || nbd_connect_uri(handle_, options_.uri.c_str()) != 0) {
        die(nbd_get_error());
    }
    const std::int64_t bytes = nbd_get_size(handle_);
    if (bytes < static_cast<std::int64_t>(options_.blocks * options_.block_bytes)) {
        die(fmt::format("the device has only {} bytes", bytes));
    }
    for (std::uint32_t i = 0; i < options_.depth; ++i) {
        Slot& slot = slots_.emplace_back();
        slot.judge = this;
        slot.words.resize(options_.block_bytes / 8);
        idle_.push_back(&slot);
    }
}

// Every word of a block says which block and write it is from.
std::uint64_t Judge::word(std::uint64_t block, std::uint64_t number, std::size_t i) const {
    if (number == 0) return 0;  // never written
    return (number << 24) ^ (block * 0x9e3779b97f4a7c15u) ^ i;
}

void Judge::fill(Slot& slot) const {
    for (std::size_t i = 0; i < slot.words.size(); ++i) {
        slot.words[i] = word(slot.block, slot.number, i);
    }
}

bool Judge::right(const Slot& slot, std::uint64_t number) const {
    for (std::size_t i = 0; i < slot.words.size(); ++i) {
        if (slot.words[i] != word(slot.block, number, i)) return false;
    }
    return true;
}

void Judge::check(const Slot& slot) {
    Block& block = blocks_[slot.block];
    if (right(slot, block.number)) return;
    for (const std::uint64_t number : block.uncertain) {
        if (right(slot, number)) return;
    }
    if (++mismatches_ > 10) return;
    const std::uint64_t found = (slot.words[0] ^ (slot.block * 0x9e3779b97f4a7c15u)) >> 24;
    fmt::print(stderr, "numbered_blocks: block {} is of write {}, expected write {}\n", slot.block,
               found, block.number);
}

void Judge::start(Slot& slot, Kind kind, std::uint64_t block) {
    slot.kind = kind;
    slot.block = block;
    slot.started = Clock::now();
    blocks_[block].busy = true;
    nbd_completion_callback done{};
    done.user_data = &slot;
    done.callback = [](void* user_data, int* error) {
        auto& finished_slot = *static_cast<Slot*>(user_data);
        finished_slot.judge->finished(finished_slot, *error);
        return 1;  // retire the command
    };
    const std::uint64_t offset = block * options_.block_bytes;
    std::int64_t cookie = 0;
    if (kind == Kind::write) {
        slot.number = next_number_++;
        fill(slot);
        cookie = nbd_aio_pwrite(handle_, slot.words.data(), options_.block_bytes, offset, done, 0);
    } else {
        cookie = nbd_aio_pread(handle_, slot.words.data(), options_.block_bytes, offset, done, 0);
    }
    if (cookie < 0) die(nbd_get_error());
}

void Judge::start_random(Slot& slot) {
    std::uint64_t block = 0;
    do {
        block = random_() % blocks_.size();
    } while (blocks_[block].busy);
    start(slot, random_() % 100 < options_.reads_percent ? Kind::read : Kind::write, block);
}

void Judge::finished(Slot& slot, int error) {
    const auto now = Clock::now();
    figures_.longest = std::max(figures_.longest, now - slot.started);
    figures_.gap = std::max(figures_.gap, now - last_answer_);
    last_answer_ = now;
    Block& block = blocks_[slot.block];
    block.busy = false;
    if (error != 0) {
        if (++errors_ <= 10) {
            fmt::print(stderr, "numbered_blocks: {} of block {} failed: {}\n",
                       slot.kind == Kind::write ? "write" : "read", slot.block,
                       std::strerror(error));
        }
        if (slot.kind == Kind::write) block.uncertain.push_back(slot.number);
    } else if (slot.kind == Kind::write) {
        ++figures_.writes;
        block.number = slot.number;
        block.uncertain.clear();
    } else {
        ++figures_.reads;
        check(slot);
    }
    idle_.push_back(&slot);
}

// Waits for the device and the input, and lets libnbd do what is due.
void Judge::turn() {
    const unsigned direction = nbd_aio_get_direction(handle_);
    pollfd fds[2]{};
    fds[0].fd = nbd_aio_get_fd(handle_);
    if ((direction & LIBNBD_AIO_DIRECTION_READ) != 0) fds[0].events |= POLLIN;
    if ((direction & LIBNBD_AIO_DIRECTION_WRITE) != 0) fds[0].events |= POLLOUT;
    fds[1] = {stopping_ ? -1 : STDIN_FILENO, POLLIN, 0};
    if (::poll(fds, 2, 100) < 0 && errno != EINTR) die(std::strerror(errno));
    if ((fds[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0 &&
        (direction & LIBNBD_AIO_DIRECTION_READ) != 0) {
        nbd_aio_notify_read(handle_);
    } else if ((fds[0].revents & POLLOUT) != 0) {
        nbd_aio_notify_write(handle_);
    }
    if (nbd_aio_is_dead(handle_) == 1 || nbd_aio_is_closed(handle_) == 1) {
        die("the connection is lost");
    }
    if (fds[1].revents != 0) take_input();
}

void Judge::take_input() {
    char bytes[256];
    const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (got <= 0) {
        stopping_ = true;
        return;
    }
    input_.append(bytes, static_cast<std::size_t>(got));
    for (auto end = input_.find('\n'); end != std::string::npos; end = input_.find('\n')) {
        const std::string line = input_.substr(0, end);
        input_.erase(0, end + 1);
        if (line == "stop") stopping_ = true;
        if (line == "mark") print("mark");
    }
}

void Judge::print(const char* event) {
    const auto now = Clock::now();
    // What still waits has waited that long.
    Figures seen = figures_;
    for (const Slot& slot : slots_) {
        if (std::ranges::find(idle_, &slot) == idle_.end()) {
            seen.longest = std::max(seen.longest, now - slot.started);
        }
    }
    seen.gap = std::max(seen.gap, now - last_answer_);
    fmt::print(
        "{{\"event\": \"{}\", \"reads\": {}, \"writes\": {}, \"bytes\": {}, "
        "\"seconds\": {:.6f}, \"longest_ms\": {:.3f}, \"gap_ms\": {:.3f}, "
        "\"errors\": {}, \"mismatches\": {}}}\n",
        event, seen.reads, seen.writes, (seen.reads + seen.writes) * options_.block_bytes,
        milliseconds(now - marked_) / 1e3, milliseconds(seen.longest), milliseconds(seen.gap),
        errors_, mismatches_);
    std::fflush(stdout);
    figures_ = {};
    marked_ = now;
}

void Judge::read_everything() {
    while (idle_.size() < slots_.size()) turn();
    for (std::uint64_t block = 0; block < blocks_.size(); ++block) {
        while (idle_.empty()) turn();
        Slot& slot = *idle_.back();
        idle_.pop_back();
        start(slot, Kind::read, block);
    }
    while (idle_.size() < slots_.size()) turn();
}

int Judge::run() {
    // Nothing is known of what was there before.
    for (std::uint64_t block = 0; block < blocks_.size(); ++block) {
        while (idle_.empty()) turn();
        Slot& slot = *idle_.back();
        idle_.pop_back();
        start(slot, Kind::write, block);
    }
    while (idle_.size() < slots_.size()) turn();
    print("ready");
    const auto begun = Clock::now();
    while (!stopping_ && milliseconds(Clock::now() - begun) < options_.seconds * 1e3) {
        while (!idle_.empty()) {
            Slot& slot = *idle_.back();
            idle_.pop_back();
            start_random(slot);
        }
        turn();
    }
    stopping_ = true;
    read_everything();
    print("end");
    nbd_shutdown(handle_, 0);
    return errors_ + mismatches_ == 0 ? 0 : 1;
}

Options parse(int argc, char** argv) {
    Options options;
    if (argc < 2)
        die("usage: numbered_blocks URI [--blocks N] [--block-size BYTES] [--depth N] "
            "[--reads PERCENT] [--seconds S] [--seed N]");
    options.uri = argv[1];
    for (int i = 2; i < argc; i += 2) {
        const std::string key = argv[i];
        if (i + 1 >= argc) die(key + " wants a value");
        const char* const text = argv[i + 1];
        const std::uint64_t value = std::strtoull(text, nullptr, 10);
        if (key == "--blocks") {
            options.blocks = value;
        } else if (key == "--block-size") {
            options.block_bytes = static_cast<std::uint32_t>(value);
        } else if (key == "--depth") {
            options.depth = static_cast<std::uint32_t>(value);
        } else if (key == "--reads") {
            options.reads_percent = static_cast<std::uint32_t>(value);
        } else if (key == "--seconds") {
            options.seconds = std::strtod(text, nullptr);
        } else if (key == "--seed") {
            options.seed = value;
        } else {
            die("no option " + key);
        }
    }
    if (options.block_bytes < 512 || options.block_bytes % 512 != 0 || options.depth < 1 ||
        options.blocks <= options.depth || options.blocks >= (1u << 24)) {
        die("out of range: --block-size, --depth or --blocks");
    }
    return options;
}

}  // namespace

int main(int argc, char** argv) { return Judge(parse(argc, argv)).run(); }
