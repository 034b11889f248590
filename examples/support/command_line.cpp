#include "support/command_line.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <utility>

#include <unistd.h>

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/info.hpp"
#include "lockstep/comm/session.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"

namespace examples {
namespace {

/// The number that a text spells out, or NaN.
double number_in(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' ? value : std::nan("");
}

/// "what: first fault, and 15 others (...)" of a message with an indented line for each fault.
std::string first_of_faults(const std::string& message) {
  std::istringstream lines(message);
  std::string text, fault;
  std::getline(lines, text);
  if (!std::getline(lines >> std::ws, fault)) return message;
  std::size_t others = 0;
  for (std::string line; std::getline(lines >> std::ws, line);) {
    std::size_t untold = 0;  // a list that is long ends with them
    std::sscanf(line.c_str(), "and %zu others", &untold);
    others += std::max<std::size_t>(untold, 1);
  }
  text += " " + fault;
  if (others > 0)
    text += ", and " + std::to_string(others) + " others (LOCKSTEP_LOG_LEVEL=info lists them)";
  return text;
}

}  // namespace

void refuse(const CLI::App& app, const std::string& message) {
  const std::string line = app.get_name() + ": " + message + " (--help lists the options)";
  // Ranks may have been given different command lines: only together do they know who speaks.
  if (!lockstep::comm::launcher_name().empty())
    throw Exit{lockstep::Session::run(0, nullptr, [](auto&) { return 2; },
                                      {.device = "cpu", .refusal = line})};
  std::cerr << line << std::endl;
  throw Exit{2};
}

void parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (lockstep::comm::launch_rank() == 0) std::cout << app.help();
    throw Exit{0};
  } catch (const CLI::ParseError& error) {
    refuse(app, error.what());
  }
}

std::function<int(lockstep::Session&)> in_one_line(std::function<int(lockstep::Session&)> body) {
  return [body = std::move(body)](lockstep::Session& session) {
    try {
      return body(session);
    } catch (const lockstep::InvalidArgument& error) {
      const std::string message = error.what();
      if (message.find("\n  ") == std::string::npos) throw;
      if (session.is_main()) LOCKSTEP_LOG(info, message);
      throw lockstep::InvalidArgument(first_of_faults(message), error.where());
    }
  };
}

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const auto check = [=](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc{} && stop == end && value >= least && value <= most) return {};
    return "must be a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
           ", not " + text;
  };
  return {check, "INT"};
}

CLI::Validator positive(double most) {
  const auto check = [=](const std::string& text) -> std::string {
    const double value = number_in(text);
    if (value > 0 && value <= most) return {};
    std::ostringstream fault;
    fault << "must be a number above 0, at most " << most << ", not " << text;
    return fault.str();
  };
  return {check, "NUMBER"};
}

CLI::Validator not_negative() {
  const auto check = [](const std::string& text) -> std::string {
    const double value = number_in(text);
    return std::isfinite(value) && value >= 0 ? std::string{}
                                              : "must be a number from 0 on, not " + text;
  };
  return {check, "NUMBER"};
}

CLI::Validator below_one() {
  const auto check = [](const std::string& text) -> std::string {
    const double value = number_in(text);
    return value >= 0 && value < 1 ? std::string{} : "must be at least 0 and below 1, not " + text;
  };
  return {check, "NUMBER"};
}

namespace {

std::string fault_of_path(const std::string& text, bool is_folder) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path wanted = fs::absolute(text, ignored);
  if (!is_folder && (!wanted.has_filename() || fs::is_directory(wanted, ignored)))
    return text + " is a folder; name a file";
  if (is_folder && fs::exists(wanted, ignored) && !fs::is_directory(wanted, ignored))
    return text + " is no folder; name another";
  fs::path place = wanted;  // what there is of it
  while (!fs::exists(place, ignored) && place.has_relative_path()) place = place.parent_path();
  const bool fits = place == wanted || fs::is_directory(place, ignored);
  return fits && access(place.c_str(), W_OK) == 0
             ? std::string{}
             : "cannot write " + text + " at " + place.string();
}

}  // namespace

CLI::Validator writable_file() {
  return {[](const std::string& text) { return fault_of_path(text, false); }, "PATH"};
}

CLI::Validator writable_folder() {
  return {[](const std::string& text) { return fault_of_path(text, true); }, "PATH"};
}

CLI::Validator writable_model() {
  const auto check = [](const std::string& text) {
    return fault_of_path(text, std::filesystem::path(text).extension() != ".safetensors");
  };
  return {check, "PATH"};
}

CLI::Validator gpt2_files() {
  const auto check = [](const std::string& text) -> std::string {
    namespace fs = std::filesystem;
    const fs::path path(text);
    const bool fine = fs::is_directory(path)
                          ? fs::exists(path / "config.json")
                          : fs::exists(path) && path.extension() == ".safetensors";
    return fine ? "" : text + " is neither a folder with config.json nor a .safetensors file";
  };
  return {check, "PATH"};
}

void add_comm_option(CLI::App& app, std::string& backend) {
  app.add_option_function<std::string>(
         "--comm", [&backend](const std::string& name) { backend = name == "auto" ? "" : name; },
         "How ranks exchange data: auto, shm, hier, mpi, tcp or nccl")
      ->check(CLI::IsMember({"auto", "shm", "hier", "mpi", "tcp", "nccl"}));
}

}  // namespace examples
