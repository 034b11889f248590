#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/train/step_graph.hpp"
#include "parallel/replicas.hpp"

/// @file
/// Trainings whose ranks share out optimizer states, gradients or parameters.

namespace lockstep::parallel::testing {

inline Replica sharded(Communicator& group, int stage, std::size_t bucket = 1 << 10,
                       DType dtype = DType::f64) {
  return Replica(make_net(7 + static_cast<std::uint64_t>(group.rank()), dtype), share(group),
                 {.bucket_bytes = bucket, .first_bucket_bytes = bucket, .zero_stage = stage});
}

inline void step_on(Replica& replica, const Batch& batch) {
  loss_of(replica(batch.x), batch).backward();
}

/// Sets all values without recording.
inline void set_all(Tensor tensor, double value) {
  const NoGradGuard no_recording;
  tensor.fill_(value);
}

/// The module alone, which a captured step evaluates.
inline StepGraph captured_evaluation(Replica& replica) {
  return StepGraph([&replica](std::span<const Tensor> in) {
    const NoGradGuard no_recording;
    return std::vector{replica.module().forward(in[0])};
  });
}

}  // namespace lockstep::parallel::testing
