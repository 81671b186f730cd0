// rnbdctl: the command line for both daemons.
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "rnbdctl/colour.h"
#include "rnbdctl/run.h"
#include "rnbdctl/table.h"
#include "rnbdctl/terminal_size.h"

int main(int argc, char** argv) {
    if (::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr) {
        rnbd::use_colour(rnbd::Colour::on);
    }
    rnbd::limit_table_width(rnbd::screen_columns());
    return rnbd::run_rnbdctl(argc, argv, std::cout, std::cerr);
}
