#include "rnbdctl/table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "rnbdctl/colour.h"

namespace rnbd {

namespace {

constexpr std::string_view gap = "  ";  // between two columns
std::optional<std::size_t> width_max;

// Characters, not bytes, as far as that goes without a width table.
std::size_t width_of(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
    }));
}

}  // namespace

void limit_table_width(std::optional<std::size_t> characters) noexcept { width_max = characters; }

void Table::add(std::vector<std::string> row) {
    row.resize(columns_.size());
    for (std::string& cell : row)
        if (cell.empty()) cell.assign(1, '-');
    rows_.push_back(std::move(row));
}

std::vector<std::size_t> Table::widths() const {
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        widths.push_back(width_of(columns_[i].title));
        for (const auto& row : rows_) widths[i] = std::max(widths[i], width_of(row[i]));
    }
    return widths;
}

std::vector<bool> Table::without(const std::vector<std::size_t>& widths, std::size_t indent) const {
    std::vector<bool> left_out(columns_.size());
    if (!width_max || columns_.empty()) return left_out;
    std::size_t length = indent + width_of(columns_.back().title);
    for (std::size_t i = 0; i + 1 < columns_.size(); ++i) length += widths[i] + gap.size();
    while (length > *width_max) {
        std::size_t least = 0;
        std::uint8_t most = 0;
        for (std::size_t i = 0; i + 1 < columns_.size(); ++i) {
            if (left_out[i] || columns_[i].dispensable <= most) continue;
            most = columns_[i].dispensable;
            least = i;
        }
        if (most == 0) break;
        left_out[least] = true;
        length -= widths[least] + gap.size();
    }
    return left_out;
}

std::string Table::text(std::size_t indent) const {
    const std::vector<std::size_t> width = widths();
    const std::vector<bool> left_out = without(width, indent);
    std::string result;
    const auto add_line = [&](const auto& cell) {
        std::string line(indent, ' ');
        bool first = true;
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            if (left_out[i]) continue;
            const std::string padding(width[i] - width_of(cell(i)), ' ');
            if (!std::exchange(first, false)) line += gap;
            if (columns_[i].align == Align::right) line += padding;
            const bool state = columns_[i].title == "STATE" && cell(i) != columns_[i].title;
            line += state ? coloured_state(cell(i)) : cell(i);
            if (columns_[i].align == Align::left) line += padding;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        result += line;
        result += '\n';
    };
    add_line([&](std::size_t i) -> const std::string& { return columns_[i].title; });
    for (const auto& row : rows_)
        add_line([&](std::size_t i) -> const std::string& { return row[i]; });
    std::string missing;
    for (std::size_t i = 0; i < columns_.size(); ++i)
        if (left_out[i]) missing += (missing.empty() ? "" : ", ") + columns_[i].title;
    if (!missing.empty()) {
        result += std::string(indent, ' ') + "(no room here for " + missing +
                  ": a wider terminal or `| cat` shows all)\n";
    }
    return result;
}

}  // namespace rnbd
