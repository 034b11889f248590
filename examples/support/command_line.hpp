#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <CLI/CLI.hpp>

namespace lockstep {
class Session;
}

/// @file
/// Command lines of the examples: `--help` prints the options and ends with 0; anything unknown or
/// impossible is one line on standard error and exit code 2. Of the ranks of a job, only rank 0
/// speaks; it also says what another rank alone was given.

namespace examples {

/// Thrown to leave main with an exit code after the message has been printed.
struct Exit {
  int code;
};

/// Parses the command line into the options bound to `app`. @throws Exit.
void parse(CLI::App& app, int argc, char** argv);

/// Prints "program: message" on standard error, once for all ranks of a job: those whose options
/// are fine learn it from their Session. @throws Exit with code 2.
[[noreturn]] void refuse(const CLI::App& app, const std::string& message);

/// What a program does in its session. What that refuses with a line for each fault, such as a
/// checkpoint of another model, becomes one line: the first fault, and how many others there are,
/// which the log has at level info.
std::function<int(lockstep::Session&)> in_one_line(std::function<int(lockstep::Session&)> body);

/// Accepts whole numbers between two bounds, both included.
CLI::Validator whole_number(std::int64_t least, std::int64_t most = std::int64_t{1} << 40);
/// Accepts numbers above 0, up to a bound.
CLI::Validator positive(double most);
/// Accepts finite numbers from 0 on.
CLI::Validator not_negative();
/// Accepts numbers from 0 to below 1.
CLI::Validator below_one();
/// Accepts paths at which a file can be made, or replaced, missing folders above it included.
CLI::Validator writable_file();
/// Accepts folders, and paths at which one can be made.
CLI::Validator writable_folder();
/// Accepts what models::save_hugging_face takes: a .safetensors file, or a folder.
CLI::Validator writable_model();
/// Accepts folders with a config.json, and .safetensors files: Hugging Face's GPT-2.
CLI::Validator gpt2_files();

/// Adds --comm: the communicator backend by its name; "auto" becomes empty, which leaves the choice
/// to the library (lockstep::comm::CommunicatorOptions::backend).
void add_comm_option(CLI::App& app, std::string& backend);

}  // namespace examples
