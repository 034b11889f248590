#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"
#include "profile/profile.hpp"

namespace simgpu::cudnn {

/// An array of a call, by the name that reports use.
struct Operand {
  std::string_view name;
  lockstep::ArrayView view;
  bool written = false;
};

/// Queues `compute` as one operation that touches exactly the operands; inputs must have been
/// written before. Arrays outside their memory are reported, and nothing is queued then.
/// @param record what the profile says of it, but for bytes.
/// @throws lockstep::CudnnError where the stream does not take the operation.
void queue(std::string name, const std::vector<Operand>& operands, lockstep::StreamRef stream,
           std::function<void()> compute, const profile::Fields& record = {});

}  // namespace simgpu::cudnn
