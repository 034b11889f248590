#pragma once

#include <string>

#include <CLI/CLI.hpp>

/// @file
/// Command lines of the examples: `--help` prints the options and ends with 0; anything unknown or
/// impossible is one line on standard error and exit code 2.

namespace examples {

/// Thrown to leave main with an exit code after the message has been printed.
struct Exit {
  int code;
};

/// Parses the command line into the options bound to `app`. @throws Exit.
void parse(CLI::App& app, int argc, char** argv);

/// Prints "program: message" on standard error. @throws Exit with code 2.
[[noreturn]] void refuse(const CLI::App& app, const std::string& message);

}  // namespace examples
