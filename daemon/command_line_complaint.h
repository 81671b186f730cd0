// Says what is wrong with a command line, in the same way for all programs.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace rnbd {

// "(see --help)"; for a command that is not the whole program "(see rnbdctl exports resize
// --help)".
std::string see_help(const CLI::App& command);
// "unknown option "--frob" (see --help)".
std::string unknown_option(const std::string& word, const CLI::App& command);

// One line, without the program's name, with see_help() of the innermost command that was found.
// Parts of the command line are quoted unchanged, so the line is not safe for a terminal yet.
// ASSUMES: error was thrown by app.parse(), and does not stand for help or version.
std::string command_line_complaint(const CLI::App& app, const CLI::ParseError& error);

// For CLI::Option::check(): an empty value is an error, so that an unset variable in a script does
// not have the meaning of an absent option. kind: what is expected, such as "FILE".
CLI::Validator not_empty(std::string kind);

// The words of a command line in the form for app.parse(), last first. For "--name=" CLI11 itself
// would take the next word as the value; with this function the value is empty.
std::vector<std::string> words_to_parse(std::vector<std::string> words);

}  // namespace rnbd
