#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/access.hpp"
#include "base/call_site.hpp"
#include "cuda_runtime_api.h"
#include "profile/fields.hpp"

/// @file
/// The one way in which anything gets onto a stream: kernels, copies, products, collectives.

namespace simgpu {

/// One piece of work of a stream.
struct Operation {
  std::string
      name{};       ///< as a report shows it: "softmax_kernel", "cudaMemcpyAsync", "ncclAllReduce"
  CallSite site{};  ///< where the program asked for it
  /// What it touches. Conflicts with operations that nothing orders against this one are findings.
  std::vector<Access> accesses{};
  /// Upper bounds rather than the truth: `run` narrows them with `touched` (kernel arguments).
  bool accesses_are_bounds = false;
  /// Writes nothing, but gives the memory another owner: a pool block comes or goes.
  bool changes_hands = false;
  /// Others may wait for it unseen (the peers of a collective, the host for a callback), so that it
  /// makes progress even while the host is silent.
  bool meets_peers = false;
  /// What its record of the profile says of it: filled in where profile::is_on().
  profile::Fields profile{};
  /// Does the work on an executor thread; true when it is done. False asks to be called again later
  /// and holds up only the operation's own stream (a collective that waits for its peers).
  /// A launch of a graph calls it anew after it was done: it must start from the beginning then.
  std::function<bool()> run{};
};

/// Queues an operation; during capture it becomes a node of the graph instead.
/// @return cudaErrorInvalidResourceHandle for a stream that does not exist, the device's sticky
/// error if it has one, and what fault injection asks for.
cudaError_t enqueue(cudaStream_t stream, Operation operation);

/// For `run` of an operation whose accesses are bounds: the ranges that it really touched.
void touched(std::vector<Access> accesses);

/// For `run` of any operation: what only that can tell, for its record of the profile.
void measured(profile::Fields fields);

}  // namespace simgpu
