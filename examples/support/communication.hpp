#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/comm/communicator.hpp>
#include <lockstep/nn/distributed_data_parallel.hpp>
#include <lockstep/parallel/chrome_trace.hpp>

#include "support/command_line.hpp"

/// @file
/// The options --comm, --plan, --reduction, --bucket-mb, --trace and --timeout.

namespace examples {

/// What the command line says of the exchange of gradients.
struct CommunicationOptions {
  std::string comm, plan = "pytorch", reduction = "default";
  double bucket_mb = 25;
  std::string trace;
  std::optional<double> timeout;

  /// Whether --reduction says so.
  bool is_reproducible() const { return reduction == "reproducible"; }
  /// Puts them into those of the replica.
  void apply_to(lockstep::DistributedDataParallelOptions& replica) const;
  /// Of the world communicator.
  lockstep::comm::CommunicatorOptions communicator() const;
};

/// Adds the options to a command line.
void add_communication_options(CLI::App& app, CommunicationOptions& options);

/// Records the first steps of a training for --trace.
class StepTraces {
 public:
  /// Records nothing without a path.
  StepTraces(const CommunicationOptions& options, lockstep::Communicator& group);

  /// After each step; of the first ones, waits for the device.
  void add(const lockstep::parallel::Reducer& reducer);
  /// At the end, on every rank.
  void write() const;

 private:
  std::filesystem::path path_;
  std::optional<lockstep::parallel::ChromeTrace> trace_;
  int steps_ = 0;
};

}  // namespace examples
