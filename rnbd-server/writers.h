// Who may still hold writes for an export. A client that loses its session keeps the writes that
// were not answered, and sends them again when it is back. If somebody else has written meanwhile,
// they are older than what is there, and the client's idea of the content is, too: it must not come
// back, until it has forgotten all that (it is mapped anew, as another writer).
//
//   Writer    On                                   Is
//   -         opens for writing                    known
//   known     says that it closes                  forgotten: it holds nothing
//   known     another one writes while it is away  out
//   out       opens                                refused
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
    struct Known {
        Id id = 0;
        std::string session;  // empty: not known any more
    };
    // So many are kept, the newest: of those that are out the others are forgotten, of those that
    // are known the others are out.
    static constexpr std::size_t known_max = 64;
    static constexpr std::size_t out_max = 256;

    bool is_out(Id id) const noexcept;
    // These say whether anything has changed. id: not 0.
    bool opens(Id id, const std::string& session);
    bool closes(Id id);
    // One of those who have it open writes: all others that are known are out. Returns them.
    std::vector<Known> writes(std::span<const Id> who_have_it_open);

    const std::vector<Known>& known() const noexcept { return known_; }
    const std::vector<Id>& out() const noexcept { return out_; }
    // Of a former life.
    void restore_known(Id id) { known_.push_back({id, ""}); }
    void restore_out(Id id) { put_out(id); }

  private:
    void put_out(Id id);

    std::vector<Known> known_;  // the oldest first
    std::vector<Id> out_;       // likewise
};

}  // namespace rnbd
