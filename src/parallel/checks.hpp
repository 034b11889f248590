#pragma once

#include <string_view>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// What collectives ask of their operands.

namespace lockstep::parallel {

/// @throws InvalidArgument unless the tensor is where the group works.
inline void check_on_device_of(std::string_view op, const Tensor& x, const Communicator& group) {
  LOCKSTEP_CHECK(x.device() == group.device(), InvalidArgument, op, ": the tensor is on ",
                 x.device(), ", group ", group.name(), " works on ", group.device(),
                 "; move one with to(device)");
}

/// The dimension, counted from the front. @throws InvalidArgument if the tensor does not have it.
inline int check_dimension(std::string_view op, const Tensor& x, std::int64_t dim) {
  LOCKSTEP_CHECK(dim >= -x.dim() && dim < x.dim(), InvalidArgument, op, ": dimension ", dim,
                 " of a tensor of shape ", x.shape());
  return wrap_dim(dim, x.dim());
}

/// The same, and @throws InvalidArgument unless the ranks can have equal parts of it.
inline int check_divides(std::string_view op, const Tensor& x, std::int64_t dim,
                         const Communicator& group) {
  const int wrapped = check_dimension(op, x, dim);
  LOCKSTEP_CHECK(x.shape()[wrapped] % group.size() == 0, InvalidArgument, op, ": dimension ", dim,
                 " of shape ", x.shape(), " does not divide among ", group.size(), " ranks");
  return wrapped;
}

}  // namespace lockstep::parallel
