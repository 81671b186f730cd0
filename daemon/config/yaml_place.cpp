#include "daemon/config/yaml_place.h"

#include <algorithm>

namespace rnbd {
namespace {

constexpr std::string_view blanks = " \t\r";

bool is_blank(char c) { return blanks.find(c) != std::string_view::npos; }

// What of YAML a line begins in. Of texts that are no YAML it is a guess.
class Place {
  public:
    // Indents count here.
    bool is_plain(std::string_view line) const noexcept {
        return brackets_ == 0 && quote_ == 0 && !is_in_block(line);
    }
    void pass(std::string_view line);
    // Set while quotes are open.
    std::optional<ConfigPlace> opening_quote() const noexcept {
        if (quote_ == 0) return std::nullopt;
        return quote_at_;
    }

  private:
    bool is_in_block(std::string_view line) const noexcept {
        if (!block_) return false;
        const auto indent = line.find_first_not_of(' ');
        return indent == std::string_view::npos || indent > *block_;
    }
    static std::size_t indent_of_value(std::string_view line) noexcept;
    std::size_t pass_quoted(std::string_view line, std::size_t i);

    std::size_t brackets_ = 0;
    char quote_ = 0;
    ConfigPlace quote_at_;
    std::size_t lines_ = 0;             // passed
    std::optional<std::size_t> block_;  // the indent that its text is deeper than
};

// Of the innermost value that the line begins: "- - key: |" has 4.
std::size_t Place::indent_of_value(std::string_view line) noexcept {
    std::size_t at = std::min(line.find_first_not_of(' '), line.size());
    while (line.substr(at).starts_with("- ")) {
        const auto inside = line.find_first_not_of(' ', at + 1);
        if (inside == std::string_view::npos || line[inside] == '|' || line[inside] == '>') break;
        at = inside;
    }
    return at;
}

// Returns the index of what closes the quotes, or the line's end.
std::size_t Place::pass_quoted(std::string_view line, std::size_t i) {
    for (; i < line.size(); ++i) {
        if (quote_ == '"' && line[i] == '\\') {
            ++i;
        } else if (line[i] == quote_) {
            if (quote_ == '"' || !line.substr(i + 1).starts_with('\'')) {
                quote_ = 0;
                return i;
            }
            ++i;  // '' is one of the text
        }
    }
    return line.size();
}

void Place::pass(std::string_view line) {
    ++lines_;
    if (is_in_block(line)) return;
    block_.reset();
    bool begins = true;  // a value may begin here
    for (std::size_t i = quote_ == 0 ? 0 : pass_quoted(line, 0) + 1; i < line.size(); ++i) {
        const char c = line[i];
        const bool ends_word = i + 1 >= line.size() || is_blank(line[i + 1]);
        if (is_blank(c)) continue;
        if (c == '#' && (i == 0 || is_blank(line[i - 1]))) return;
        if ((c == '[' || c == '{') && begins) {
            ++brackets_;
        } else if ((c == ']' || c == '}') && brackets_ > 0) {
            --brackets_;
            begins = false;
        } else if ((c == '"' || c == '\'') && begins) {
            quote_ = c;
            quote_at_ = {lines_, i + 1};
            i = pass_quoted(line, i + 1);
            begins = false;
        } else if ((c == '|' || c == '>') && begins && brackets_ == 0) {
            block_ = indent_of_value(line);
            return;
        } else {
            const bool introduces = c == ':' || (begins && (c == '-' || c == '?'));
            begins = (introduces && ends_word) || (brackets_ > 0 && (c == ',' || c == ':'));
        }
    }
}

std::string_view line_at(std::string_view text, std::size_t begin) {
    return text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin);
}

bool is_indented_with_tab(std::string_view line) {
    const auto tab = line.find_first_not_of(' ');
    if (tab == std::string_view::npos || line[tab] != '\t') return false;
    const auto content = line.find_first_not_of(blanks);
    return content != std::string_view::npos && line[content] != '#';
}

}  // namespace

std::optional<ConfigPlace> config_tab_near(std::string_view text, std::size_t line) {
    Place place;
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= line && begin <= text.size(); ++i) {
        const std::string_view here = line_at(text, begin);
        if (i + 1 >= line && is_indented_with_tab(here) && place.is_plain(here))
            return ConfigPlace{i + 1, here.find('\t') + 1};
        place.pass(here);
        begin += here.size() + 1;
    }
    return std::nullopt;
}

std::optional<ConfigPlace> config_open_quote(std::string_view text) {
    Place place;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::string_view here = line_at(text, begin);
        place.pass(here);
        begin += here.size() + 1;
    }
    return place.opening_quote();
}

}  // namespace rnbd
