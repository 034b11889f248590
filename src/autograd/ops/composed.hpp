#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "lockstep/autograd/op_call.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// The way into an op that is composed of others, which check their operands and record themselves.

namespace lockstep::autograd {
namespace detail {

/// As cast_operands, but recorded.
void convert_operands(const OpDescriptor& op, std::span<const Tensor*> operands,
                      std::span<Tensor> casts);

}  // namespace detail

/// One call of a composed op: the ranges of its parts lie within its own. Lives while the op runs:
/// it refers to the operands. Those after the first may be undefined; without any, the op leaves
/// checks and conversions to its parts (so that, of a product, gradients arrive in the weight's
/// dtype).
template <std::size_t N>
class ComposedOp {
 public:
  /// Opens the trace range, converts the operands where mixed precision asks for it, and checks
  /// them.
  /// @throws as OpCall
  template <class... Operands>
  explicit ComposedOp(const OpDescriptor& op, const Operands&... operands)
      : op_(op), range_(op.name), operands_{&operands...} {
    if constexpr (N > 0) {
      if (thread_modes.autocast) [[unlikely]]
        detail::convert_operands(op, operands_, casts_);
      detail::check_operands(op, operands_);
    }
  }
  ComposedOp(const ComposedOp&) = delete;
  ComposedOp& operator=(const ComposedOp&) = delete;

  /// The operand to compute with.
  const Tensor& operator[](std::size_t i) const noexcept { return *operands_[i]; }
  /// What users call the op.
  std::string_view name() const noexcept { return op_.name; }

 private:
  const OpDescriptor& op_;
  TraceRange range_;
  std::array<const Tensor*, N> operands_;
  std::array<Tensor, N> casts_;
};

/// As many operands as are given.
template <class... Operands>
ComposedOp(const OpDescriptor&, const Operands&...) -> ComposedOp<sizeof...(Operands)>;

}  // namespace lockstep::autograd
