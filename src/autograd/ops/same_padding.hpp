#pragma once

#include <string_view>

#include "lockstep/autograd/ops/spatial.hpp"
#include "lockstep/core/error.hpp"

/// @file
/// Paddings of convolutions in numbers.

namespace lockstep::autograd {

/// Padding before and behind an extent.
struct PaddedSides {
  std::int64_t before, after;
};

/// Of one dimension of a convolution, whose padding may be `same_padding`.
/// @throws InvalidArgument for that with a stride.
inline PaddedSides padded_sides(std::string_view op, std::int64_t padding, std::int64_t kernel,
                                std::int64_t stride, std::int64_t dilation) {
  if (padding != same_padding) return {padding, padding};
  LOCKSTEP_CHECK(stride == 1, InvalidArgument, op, ": same_padding with a stride of ", stride,
                 "; it needs a stride of 1");
  const std::int64_t reach = dilation * (kernel - 1);
  return {reach / 2, reach - reach / 2};
}

}  // namespace lockstep::autograd
