#pragma once

#include <string_view>

#include "lockstep/core/array_view.hpp"
#include "lockstep/core/op_descriptor.hpp"
#include "lockstep/observe/trace_range.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// The way into an op that changes a tensor in place.

namespace lockstep::autograd {

/// One call of an op in place: it opens the op's trace range, is not recorded, and keeps the dtype
/// of what it changes, also under mixed precision. Lives while the op runs: it refers to the
/// tensor.
class InPlaceCall {
 public:
  /// @throws Unsupported for a dtype that the op does not take.
  InPlaceCall(const OpDescriptor& op, const Tensor& changed);
  InPlaceCall(const InPlaceCall&) = delete;
  InPlaceCall& operator=(const InPlaceCall&) = delete;

  /// What users call the op.
  std::string_view name() const noexcept { return op_.name; }
  /// An operand repeated to the shape of what is changed, as kernels read it.
  /// @throws InvalidArgument where it differs in dtype (unless the descriptor lets it) or device,
  /// does not fit, requires a gradient (which would get lost), or would be overwritten as it is
  /// read.
  ArrayView operand(const Tensor& other) const;
  /// @throws InvalidArgument where the op cannot read `other`: all of `operand` but device, dtype
  /// and memory.
  void check_fits(const Tensor& other) const;
  /// @throws InvalidArgument if several elements of what is changed lie at one place: kernels write
  /// in any order, and several at once.
  void check_written_once() const;
  /// Notes the change, after all checks; the memory to write.
  /// @throws InvalidArgument if the tensor requires a gradient while recording is on.
  ArrayView write() const;

 private:
  const OpDescriptor& op_;
  TraceRange range_;
  const Tensor& changed_;
};

}  // namespace lockstep::autograd
