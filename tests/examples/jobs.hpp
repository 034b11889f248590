#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/mpi_environment.hpp"
#include "support/process.hpp"
#include "support/temporary_folder.hpp"
#include "support/timeout_multiplier.hpp"

/// @file
/// Runs of the example programs.

namespace examples::testing {

using lockstep::testing::CommandResult;
using lockstep::testing::occurrences;
using lockstep::testing::run_command;
using lockstep::testing::TemporaryFolder;

/// Path of a program, with its arguments behind it.
inline std::string command(const std::string& program, const std::string& arguments) {
  return LOCKSTEP_BIN "/" + program + " " + arguments;
}

/// The start of a command line that runs ranks.
inline std::string mpirun(int ranks) {
  return LOCKSTEP_MPIEXEC " --bind-to none -np " + std::to_string(ranks) + " ";
}

/// A GPT that trains in a second or two, on text of the given kind.
inline std::string tiny_gpt(const std::string& more) {
  return command("train_gpt",
                 "--layers 1 --heads 2 --channels 32 --context 32 --global-batch 4 --warmup 5 "
                 "--threads 1 --sample 24 --data " LOCKSTEP_TEXT " " +
                     more);
}

/// The objects of a log, one a line. @throws nlohmann's error for a line that is no JSON.
inline std::vector<nlohmann::json> read_log(const std::filesystem::path& path) {
  std::vector<nlohmann::json> steps;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) steps.push_back(nlohmann::json::parse(line));
  return steps;
}

/// What stands behind "held-out loss " in a program's output; NaN, and a failure, if nothing does.
inline double held_out_loss(const std::string& output) {
  const std::string words = "held-out loss ";
  const auto at = output.find(words);
  EXPECT_NE(at, std::string::npos) << output;
  return at == std::string::npos ? std::nan("") : std::stod(output.substr(at + words.size()));
}

inline std::size_t count_lines(const std::filesystem::path& path) {
  std::ifstream in(path);
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>(), '\n'));
}

}  // namespace examples::testing
