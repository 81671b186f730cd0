// Who may still hold writes for an export. A client that loses its session keeps the writes that
// were not answered, and sends them again when it is back. If somebody else has written meanwhile,
// they are older than what is there, and the client's idea of the content is, too: it must not come
// back, until it has forgotten all that (it is mapped anew, as another writer).
//
//   Writer    On                                       Is
//   -         opens for writing                        known
//   known     says that it closes                      forgotten: it holds nothing
//   known     another one writes while it is away      out
//   known     its session opens as another writer,     out
//             by the same export
//   out       opens                                    refused
//
// One that nobody has heard of may open: the server has lost its book, or it is another server. A
// write of one that is not known (a kernel's client says no number) puts others out like any.
//
// Pure: no I/O. THREAD: any one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rnbd {

class Writers {
  public:
    using Id = std::uint64_t;  // by chance; 0: none
    struct One {
        Id id = 0;
        std::string session;
        std::string export_name;  // by which it came
    };
    using Ids = std::span<const Id>;
    // So many are known: one per session that may write, and those that have it open. Beyond that
    // the oldest that is away is forgotten.
    static constexpr std::size_t known_max = 1024;
    // So many are out, the newest of each session and of all: no session can crowd out another's
    // with lives of its own.
    static constexpr std::size_t out_of_session_max = 4;
    static constexpr std::size_t out_max = 256;

    bool is_out(Id id) const noexcept;
    bool knows(Id id) const noexcept;
    // What has changed by it: nothing; who is known; and somebody is out now.
    enum class News : std::uint8_t { none, known, out };
    // one: its id is not 0. here: who have it open now.
    News opens(const One& one, Ids here);
    // Whether it was known.
    bool closes(Id id);
    // One of those who are here writes: all others that are known are out. Returns them.
    std::vector<One> writes(Ids here);

    // The oldest first.
    const std::vector<One>& known() const noexcept { return known_; }
    const std::vector<One>& out() const noexcept { return out_; }
    bool empty() const noexcept { return known_.empty() && out_.empty(); }
    // Of a former life of the server.
    void restore_known(One one);
    void restore_out(One one) { put_out(std::move(one)); }

  private:
    void put_out(One one);

    std::vector<One> known_;
    std::vector<One> out_;
};

}  // namespace rnbd
