#include "rnbdctl/table.h"

#include <algorithm>

#include "rnbdctl/colour.h"

namespace rnbd {

namespace {

// Characters, not bytes, as far as that goes without a width table.
std::size_t width_of(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
    }));
}

}  // namespace

void Table::add(std::vector<std::string> row) {
    row.resize(columns_.size());
    for (std::string& cell : row)
        if (cell.empty()) cell.assign(1, '-');
    rows_.push_back(std::move(row));
}

std::string Table::text(std::size_t indent) const {
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        widths.push_back(width_of(columns_[i].title));
        for (const auto& row : rows_) widths[i] = std::max(widths[i], width_of(row[i]));
    }
    std::string result;
    const auto add_line = [&](const auto& cell) {
        std::string line(indent, ' ');
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            const std::string padding(widths[i] - width_of(cell(i)), ' ');
            if (i > 0) line += "  ";
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
    return result;
}

}  // namespace rnbd
