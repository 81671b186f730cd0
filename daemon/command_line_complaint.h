// What is wrong with a command line, said alike by all programs.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace rnbd {

// "(see --help)"; of a command that is not the whole program "(see rnbdctl exports resize --help)".
std::string see_help(const CLI::App& command);
// "unknown option "--frob" (see --help)".
std::string unknown_option(const std::string& word, const CLI::App& command);

// One line, without the program's name, with see_help() of the innermost command that was found.
// What is quoted of the command line is as it came: not yet safe for a terminal. ASSUMES: error was
// thrown by app.parse(), and is none of those that stand for help or version.
std::string command_line_complaint(const CLI::App& app, const CLI::ParseError& error);

// For CLI::Option::check(): an empty value is an error, for an unset variable of a script must not
// stand for what no value stands for. kind: what is expected, as "FILE".
CLI::Validator not_empty(std::string kind);

// The words of a command line as app.parse() takes them, last first. Of CLI11 itself "--name="
// takes the next word for its value; here its value is empty.
std::vector<std::string> words_to_parse(std::vector<std::string> words);

}  // namespace rnbd
