#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <lockstep/parallel/delayed_reduction.hpp>
#include <lockstep/train/periodic_averaging.hpp>

#include "support/command_line.hpp"

/// @file
/// The option --async.

namespace examples {

/// What it says.
struct Asynchrony {
  std::string kind = "none";    ///< none, local, diloco or stale
  std::int64_t sync_every = 0;  ///< of local and diloco

  /// Whether ranks have parameters of their own between averages.
  bool lets_ranks_drift() const { return sync_every > 0; }
};

/// Adds --async, which lets ranks wait for each other less: none, local:K, diloco:K or stale.
void add_async_option(CLI::App& app, Asynchrony& async);

/// The communication hook that it asks for; null where it is another.
std::shared_ptr<lockstep::parallel::DelayedReduction> delayed_reduction(const Asynchrony& async);

/// What averages the parameters; null where nothing does.
template <class M>
std::unique_ptr<lockstep::PeriodicAveraging> make_averaging(
    const Asynchrony& async, lockstep::DistributedDataParallel<M>& replica,
    lockstep::optim::Optimizer& optimizer) {
  if (async.kind == "local")
    return std::make_unique<lockstep::LocalSGD>(
        replica, optimizer, lockstep::LocalSGDOptions{.sync_every = async.sync_every});
  if (async.kind == "diloco")
    return std::make_unique<lockstep::DiLoCo>(
        replica, optimizer, lockstep::DiLoCoOptions{.sync_every = async.sync_every});
  return nullptr;
}

}  // namespace examples
