#include "rtrs/base/intrusive_list.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "rtrs/base/random.h"

using namespace rtrs;

namespace {
struct Element : ListLink {
    int name = 0;
};
}  // namespace

TEST_CASE("intrusive list: elements come out in order, from the front") {
    IntrusiveList<Element> list;
    Element a, b, c;
    REQUIRE(list.empty());
    list.push_back(a);
    list.push_back(b);
    list.push_front(c);
    REQUIRE(&list.front() == &c);
    REQUIRE(&list.pop_front() == &c);
    REQUIRE(!c.linked());
    IntrusiveList<Element>::remove(b);
    REQUIRE(&list.pop_front() == &a);
    REQUIRE(list.empty());
    list.push_back(b);  // and may come back
    REQUIRE(&list.pop_front() == &b);
}

TEST_CASE("intrusive list: random operations agree with a deque") {
    Random random(7);
    std::vector<Element> elements(50);
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i].name = static_cast<int>(i);
    IntrusiveList<Element> list;
    std::deque<int> model;
    for (int step = 0; step < 20000; ++step) {
        Element& element = elements[random.below(elements.size())];
        if (element.linked()) {
            IntrusiveList<Element>::remove(element);
            model.erase(std::ranges::find(model, element.name));
        } else if (random.chance(1, 2)) {
            list.push_back(element);
            model.push_back(element.name);
        } else {
            list.push_front(element);
            model.push_front(element.name);
        }
        REQUIRE(list.empty() == model.empty());
        if (!model.empty()) REQUIRE(list.front().name == model.front());
    }
    while (!list.empty()) {
        REQUIRE(list.pop_front().name == model.front());
        model.pop_front();
    }
    REQUIRE(model.empty());
}
