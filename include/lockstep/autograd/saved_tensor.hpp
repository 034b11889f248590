#pragma once

#include <cstdint>

#include "lockstep/autograd/gradient_memory.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Tensors that an op keeps for its backward.

namespace lockstep::autograd {

/// Keeps a tensor, and refuses to give it back once somebody has changed it in place or exchanged
/// its array.
class SavedTensor {
 public:
  /// Keeps nothing.
  SavedTensor() = default;
  /// Keeps an operand, or a tensor that stays outside the graph; an undefined one is kept as such.
  explicit SavedTensor(const Tensor& tensor) : tensor_(tensor) {
    if (!tensor.defined()) return;
    stamp_ = tensor.impl().value_stamp();
    if (thread_modes.recomputation) [[unlikely]]
      leave();
  }
  /// Keeps the result that is about to be recorded: its array only, for a node that kept its own
  /// result would keep itself alive.
  static SavedTensor of_result(const Tensor& result) { return SavedTensor(result.detach()); }

  /// The tensor, for the backward that runs: a copy if it lies where that writes gradients.
  /// One that was left to a Recomputation is computed now.
  /// @throws InvalidArgument, naming the op whose backward runs, if it was changed in place since
  /// it was saved.
  const Tensor& get() const {
    if (!tensor_.defined()) return tensor_;
    if (tensor_.impl().value_stamp() != stamp_) [[unlikely]]
      return recomputed();
    if (thread_modes.noting_reads) [[unlikely]]
      tell();
    if (tensor_.impl().storage->holds_gradient()) [[unlikely]]
      move_away();
    return tensor_;
  }

 private:
  friend class Recomputation;
  // No stamp that a tensor ever has.
  static constexpr std::uint64_t left_to_recomputation = ~std::uint64_t{0};

  void leave();
  void tell() const;
  const Tensor& recomputed() const;
  void move_away() const;

  mutable Tensor tensor_;
  mutable std::uint64_t stamp_ = 0;
};

}  // namespace lockstep::autograd
