#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/core/op_descriptor.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// The way into an op that is composed of others, which check their operands and record themselves.

namespace lockstep::autograd {
namespace detail {

/// As cast_operands, but recorded.
void convert_operands(const OpDescriptor& op, std::span<const Tensor*> operands,
                      std::span<Tensor> casts);

}  // namespace detail

/// The operands of one call of a composed op, as mixed precision wants them. Lives while the op
/// runs: it refers to the operands. Those after the first may be undefined.
template <std::size_t N>
class ComposedOp {
 public:
  /// Converts the operands where mixed precision asks for it.
  template <class... Operands>
  explicit ComposedOp(const OpDescriptor& op, const Operands&... operands)
      : operands_{&operands...} {
    if (thread_modes.autocast) [[unlikely]]
      detail::convert_operands(op, operands_, casts_);
  }
  ComposedOp(const ComposedOp&) = delete;
  ComposedOp& operator=(const ComposedOp&) = delete;

  /// The operand to compute with.
  const Tensor& operator[](std::size_t i) const noexcept { return *operands_[i]; }

 private:
  std::array<const Tensor*, N> operands_;
  std::array<Tensor, N> casts_;
};

/// As many operands as are given.
template <class... Operands>
ComposedOp(const OpDescriptor&, const Operands&...) -> ComposedOp<sizeof...(Operands)>;

}  // namespace lockstep::autograd
