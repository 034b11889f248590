#pragma once

#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <lockstep/comm/communicator.hpp>

/// @file
/// Ranks that were given different options would train different models, or wait for each other.

namespace examples {

/// Options that are not simply compared.
struct OptionKinds {
  /// Each rank may set these for itself: threads, where rank 0 writes.
  std::vector<std::string_view> own = {};
  /// Their paths may differ between hosts, what they hold may not: its size is compared.
  std::vector<std::string_view> inputs = {};
};

/// Compares the parsed options between the ranks, defaults included; numbers by value, so that 1e-3
/// is 0.001. Every rank must call it while the variables bound to `app` are unchanged.
/// @throws lockstep::InvalidArgument on every rank, naming the option, both values and their ranks.
void check_same_options(lockstep::Communicator& group, CLI::App& app, const OptionKinds& kinds);

}  // namespace examples
