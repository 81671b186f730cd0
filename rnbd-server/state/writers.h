// The writers that may still hold writes for a medium. A client that loses its session keeps the
// writes that were not answered, and sends them again when it is back. If somebody else has written
// meanwhile, these writes are older than what is there now, and so is what the client believes of
// the content. It must not come back before it has forgotten all that (before it is mapped anew, as
// another writer).
//
//   Writer    On                                       Is
//   -         opens for writing                        known
//   known     says that it closes                      forgotten: it holds nothing
//   known     another one writes while it is away      out
//   known     its session opens as another writer,     out
//             by the same export
//   out       opens                                    refused
//
// A writer that the server does not know may open: the server may have lost its state file, or be
// another server. A write of a client that says no writer number (a kernel client) puts others out,
// too.
//
// Pure: no I/O. THREAD: any; one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rnbd {

class Writers {
  public:
    using Id = std::uint64_t;  // a random number; 0: none
    struct One {
        Id id = 0;
        std::string session;
        std::string export_name;  // the export that it opened
    };
    using Ids = std::span<const Id>;
    // At most this many writers are known: one per session that may write, and those that have it
    // open. Beyond that, the oldest one that is away is forgotten.
    static constexpr std::size_t known_max = 1024;
    // At most this many writers are out: the newest of each session, and the newest of all. So no
    // session can displace the writers of others by many lives of its own.
    static constexpr std::size_t out_of_session_max = 4;
    static constexpr std::size_t out_max = 256;

    bool is_out(Id id) const noexcept;
    bool knows(Id id) const noexcept;
    // What an open has changed: nothing; which writers are known; or that, and a writer is out now.
    enum class News : std::uint8_t { none, known, out };
    // one: its id is not 0. here: the writers that have it open now.
    News opens(const One& one, Ids here);
    // Returns whether the writer was known.
    bool closes(Id id);
    // One of the writers in `here` writes. All other known writers are out now; returns them.
    std::vector<One> writes(Ids here);

    // Oldest first.
    const std::vector<One>& known() const noexcept { return known_; }
    const std::vector<One>& out() const noexcept { return out_; }
    bool empty() const noexcept { return known_.empty() && out_.empty(); }
    // These restore writers of a former life of the server.
    void restore_known(One one);
    void restore_out(One one) { put_out(std::move(one)); }

  private:
    void put_out(One one);

    std::vector<One> known_;
    std::vector<One> out_;
};

}  // namespace rnbd
