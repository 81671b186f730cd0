// A server's catalog as its client sees it. A client can ask for it once, and the session follows
// it.
//
// The session follows the catalog from its first connection on. After a reconnect to a server that
// does not know that any more, the catalog is asked for again, and what has changed meanwhile is
// reported as events; so no change is missed. A server without messages (a kernel) has no catalog:
// known() stays false.
//
// OWNER: RemoteSession. THREAD: the session's.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "rnbd/catalog.h"
#include "rtrs/client.h"

namespace rnbd {

class RemoteCatalog {
  public:
    using Heard = std::function<void(const CatalogEvent&)>;
    // entries: valid only during the call.
    using Answered =
        std::function<void(std::error_code error, const std::vector<CatalogEntry>& entries)>;

    // Called if the server's picture cannot be read. Until the next server there is no catalog.
    using Unreadable = std::function<void(const std::string& why)>;

    // heard: called for every change, also for changes that a new picture shows.
    RemoteCatalog(rtrs::ClientSession& session, Heard heard, Unreadable unreadable);

    // Asks the server now, or as soon as it is connected. answered: called once, possibly from
    // inside ask().
    // ERRORS: EOPNOTSUPP (the server has no messages), Error::path_lost, Error::closed, EMSGSIZE,
    // Error::protocol, ENOMEM, ENOBUFS (too much is being sent).
    void ask(Answered answered);
    // True if a picture has arrived and is kept up to date.
    bool known() const noexcept { return following_ && generation_.has_value(); }
    const std::map<std::string, CatalogEntry>& entries() const noexcept { return entries_; }
    // What was wrong with the last picture that could not be read; empty: none was.
    const std::string& complaint() const noexcept { return complaint_; }
    // What the server last said about itself, even if the server has gone since; nullopt: nothing.
    std::optional<ServerIntent> intent() const noexcept { return intent_; }

    // --- For the session.
    void link_ready();
    void reset();
    void closed();

  private:
    void wait_for(CatalogTag what);
    void received(CatalogTag what, const rtrs::ReceivedMessage& message);
    void picture(const rtrs::ReceivedMessage& message);
    void event(const rtrs::ReceivedMessage& message);
    void follow();
    std::error_code request(bool follow, std::uint32_t number);
    void apply(const CatalogPicture& picture);
    void apply(const CatalogEvent& event);
    void fail_questions(std::error_code error);

    struct Slot {
        RemoteCatalog* catalog;
        CatalogTag what;
    };

    rtrs::ClientSession& session_;
    Heard heard_;
    Unreadable unreadable_;
    Slot pictures_{this, CatalogTag::picture};
    Slot events_{this, CatalogTag::event};
    bool waiting_ = false;  // receives are posted
    bool following_ = false;
    std::uint32_t number_ = 0;  // the last number that was used in a tag
    std::uint32_t following_number_ = 0;
    std::optional<std::uint64_t> generation_;
    std::map<std::string, CatalogEntry> entries_;
    std::optional<ServerIntent> intent_;
    std::string complaint_;
    std::list<Answered> unasked_;
    std::map<std::uint32_t, Answered> asked_;
};

}  // namespace rnbd
