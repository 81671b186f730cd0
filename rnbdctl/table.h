// Text in aligned columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rnbd {

// How many characters a line of a table may have; none, the default: as many as it needs.
// THREAD: one; the setting is global to the process.
void limit_table_width(std::optional<std::size_t> characters) noexcept;

class Table {
  public:
    enum class Align : std::uint8_t { left, right };
    struct Column {
        std::string title;
        Align align = Align::left;
        // Columns of a table that is too wide are left out, those with the greatest number first,
        // and a line below names them. 0: this one never is.
        std::uint8_t dispensable = 0;
    };

    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

    // One cell per column; an empty one is shown as "-".
    void add(std::vector<std::string> row);
    bool empty() const noexcept { return rows_.empty(); }
    // Title line and rows, each behind `indent` spaces; no trailing spaces. What is in the last
    // column may be longer than a line.
    std::string text(std::size_t indent) const;

  private:
    std::vector<std::size_t> widths() const;
    // Which columns are left out so that a line is not too long.
    std::vector<bool> without(const std::vector<std::size_t>& widths, std::size_t indent) const;

    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace rnbd
