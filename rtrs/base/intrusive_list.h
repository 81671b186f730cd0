// A doubly linked list whose links live in the elements: no allocation, O(1) removal.
//
// ASSUMES: an element is in at most one list per link; it leaves its list before it dies
// (asserted by the link's destructor).
#pragma once

#include "rtrs/base/assert.h"

namespace rtrs {

struct ListLink {
    ListLink* previous = nullptr;
    ListLink* next = nullptr;

    ListLink() = default;
    ListLink(const ListLink&) = delete;
    ListLink& operator=(const ListLink&) = delete;
    ~ListLink() { RTRS_ASSERT(!linked()); }
    bool linked() const noexcept { return next != nullptr; }
};

// T derives from ListLink (one list at a time).
template <typename T>
class IntrusiveList {
  public:
    IntrusiveList() noexcept { head_.previous = head_.next = &head_; }
    ~IntrusiveList() {
        RTRS_ASSERT(empty());
        head_.previous = head_.next = nullptr;
    }
    IntrusiveList(const IntrusiveList&) = delete;
    IntrusiveList& operator=(const IntrusiveList&) = delete;

    bool empty() const noexcept { return head_.next == &head_; }
    T& front() noexcept {
        RTRS_ASSERT(!empty());
        return *static_cast<T*>(head_.next);
    }
    void push_back(T& element) noexcept { insert_before(head_, element); }
    void push_front(T& element) noexcept { insert_before(*head_.next, element); }
    T& pop_front() noexcept {
        T& element = front();
        remove(element);
        return element;
    }
    static void remove(T& element) noexcept {
        ListLink& link = element;
        RTRS_ASSERT(link.linked());
        link.previous->next = link.next;
        link.next->previous = link.previous;
        link.previous = link.next = nullptr;
    }

    // Front to back. The visited element may leave the list; the others must stay.
    template <typename Visit>
    void for_each(Visit visit) {
        for (ListLink* link = head_.next; link != &head_;) {
            ListLink* next = link->next;
            visit(*static_cast<T*>(link));
            link = next;
        }
    }

  private:
    static void insert_before(ListLink& where, T& element) noexcept {
        ListLink& link = element;
        RTRS_ASSERT(!link.linked());
        link.previous = where.previous;
        link.next = &where;
        where.previous->next = &link;
        where.previous = &link;
    }

    ListLink head_;
};

}  // namespace rtrs
