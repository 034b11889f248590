#pragma once

#include <array>
#include <cstddef>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/autograd/record.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/core/op_descriptor.hpp"
#include "lockstep/observe/trace_range.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// The way into an op, the same for all: what happens before its kernel (checks, casts, the trace
/// range) and after it (recording). A differentiable op, inside the library or outside, reads
///
///     constexpr OpDescriptor cube_op{.name = "cube"};
///
///     Tensor cube(const Tensor& x_in) {
///       const OpCall call(cube_op, x_in);
///       const Tensor& x = call[0];
///       Tensor y = ...;
///       if (!call.recording()) return y;
///       const auto backward = [x = SavedTensor(x)](const Tensor& dy, InputGradients& dx) {
///         dx.set(0, dy * 3.0 * square(dx.operand(0, x)));
///       };
///       return call.record(y, Differentiable{backward});
///     }

namespace lockstep::autograd {

namespace detail {

/// @throws Unsupported for a dtype that the op does not take.
[[noreturn]] void throw_unsupported(const OpDescriptor& op, const Tensor& operand);
/// @throws InvalidArgument for operands of different devices or dtypes.
[[noreturn]] void throw_unlike(const OpDescriptor& op, const Tensor& first, const Tensor& other);

/// Replaces operands by what mixed precision makes of them, not recorded: `casts[i]` keeps the new
/// one alive where there is one.
void cast_operands(const OpDescriptor& op, std::span<const Tensor*> operands,
                   std::span<Tensor> casts);

/// Tells the part of the forward that is recorded, or runs again, what an op of it reads.
void note_operands(const OpDescriptor& op, std::span<const Tensor* const> operands);

/// Tells the StepGraph that rehearses a step what an op of it reads.
void note_reads(const OpDescriptor& op, std::span<const Tensor* const> operands);

/// Checks operands against a descriptor; undefined ones after the first are absent.
inline void check_operands(const OpDescriptor& op, std::span<const Tensor* const> operands) {
  const TensorImpl& first = operands[0]->impl();
  if (!admits(op.dtypes, first.dtype)) [[unlikely]]
    throw_unsupported(op, *operands[0]);
  for (const Tensor* operand : operands.subspan(1)) {
    if (!operand->defined()) continue;
    const TensorImpl& other = operand->impl();
    const bool alike = other.dtype == first.dtype || op.operands == OperandDTypes::own;
    if (!alike || other.storage->device() != first.storage->device()) [[unlikely]]
      throw_unlike(op, *operands[0], *operand);
  }
}

}  // namespace detail

/// One call of an op with N differentiable operands. Lives while the op runs: it refers to the
/// operands.
template <std::size_t N>
class OpCall {
 public:
  /// Checks the operands, converts them where mixed precision asks for it, and opens the op's trace
  /// range. Operands after the first may be undefined: then they are absent.
  /// @throws InvalidArgument for an undefined first operand, or operands that differ in device or
  /// (unless the descriptor lets them) dtype; Unsupported for a dtype that the op does not take.
  template <class... Operands>
  explicit OpCall(const OpDescriptor& op, const Operands&... operands)
      : op_(op),
        range_(op.name),
        // Both from the arguments: a copy, wide, of what was stored in parts just now would stall.
        given_{&operands...},
        operands_{&operands...},
        recording_(thread_modes.grad && (operands.requires_grad() || ...)) {
    if (thread_modes.autocast) [[unlikely]]
      detail::cast_operands(op, operands_, casts_);
    detail::check_operands(op, operands_);
    if (thread_modes.recomputation && recording_) [[unlikely]]
      detail::note_operands(op, given_);
    if (thread_modes.noting_reads) [[unlikely]]
      detail::note_reads(op, given_);
  }
  /// The call keeps references: a temporary would be gone before it uses it.
  template <class... Operands>
  requires(std::is_rvalue_reference_v<Operands&&> || ...)  //
      explicit OpCall(const OpDescriptor& op, Operands&&... operands) = delete;
  OpCall(const OpCall&) = delete;
  OpCall& operator=(const OpCall&) = delete;

  /// The operand to compute with.
  const Tensor& operator[](std::size_t i) const noexcept { return *operands_[i]; }
  /// The operand as row-major memory; absent if it is. Not recorded: the gradient goes to the
  /// operand as it was given.
  Tensor dense(std::size_t i) const {
    const Tensor& operand = *operands_[i];
    if (!operand.defined() || operand.is_contiguous()) return operand;
    return no_grad([&] { return operand.contiguous(); });
  }
  /// True if the result must be recorded.
  bool recording() const noexcept { return recording_; }
  /// What users call the op.
  std::string_view name() const noexcept { return op_.name; }

  /// Records the result. One that is an operand, or was recorded before, stays what it is: the
  /// recorded one then is an alias of it.
  /// @param backward called with (gradient of the result, InputGradients of the operands). What it
  /// sets in another dtype than the operand was given in is converted.
  template <class Backward>
  Tensor record(Tensor output, Backward&& backward) const {
    detail::make_recordable(output, is_operand(output));
    return detail::attach(op_.name, std::move(output), std::forward<Backward>(backward),
                          [this] { return edges(); });
  }
  /// Records several results.
  /// @param backward called with (span of the results' gradients, undefined where none came,
  /// InputGradients of the operands).
  template <class Backward>
  void record_outputs(std::span<Tensor> outputs, Backward&& backward) const {
    for (Tensor& output : outputs) detail::make_recordable(output, is_operand(output));
    detail::attach_outputs(op_.name, outputs, std::forward<Backward>(backward),
                           [this] { return edges(); });
  }

 private:
  bool is_operand(const Tensor& output) const noexcept {
    bool result = false;
    for (const Tensor* operand : given_) result |= output.is_same(*operand);
    return result;
  }
  std::array<Edge, N> edges() const {
    return [this]<std::size_t... I>(std::index_sequence<I...>) {
      return std::array<Edge, N>{edge_to(*given_[I])...};
    }
    (std::make_index_sequence<N>());
  }

  const OpDescriptor& op_;
  TraceRange range_;
  std::array<const Tensor*, N> given_, operands_;
  std::array<Tensor, N> casts_;
  bool recording_;
};

/// As many operands as are given.
template <class... Operands>
OpCall(const OpDescriptor&, const Operands&...) -> OpCall<sizeof...(Operands)>;

/// One call of an op with a list of operands, all of one dtype and device.
class OpListCall {
 public:
  /// As OpCall. @throws as OpCall; InvalidArgument for an empty list.
  OpListCall(const OpDescriptor& op, std::span<const Tensor> operands);
  /// Refuses a list that would be gone before the call uses it.
  template <std::ranges::range List>
  requires(!std::ranges::borrowed_range<List>)  //
      OpListCall(const OpDescriptor& op, List&& operands)
  = delete;
  OpListCall(const OpListCall&) = delete;
  OpListCall& operator=(const OpListCall&) = delete;

  /// Number of operands.
  std::size_t size() const noexcept { return operands_.size(); }
  /// The operand to compute with.
  const Tensor& operator[](std::size_t i) const noexcept { return *operands_[i]; }
  /// True if the result must be recorded.
  bool recording() const noexcept { return recording_; }
  /// What users call the op.
  std::string_view name() const noexcept { return op_.name; }
  /// Records the result, as OpCall::record.
  template <class Backward>
  Tensor record(Tensor output, Backward&& backward) const {
    for (const Tensor& operand : given_) detail::make_recordable(output, output.is_same(operand));
    return detail::attach(op_.name, std::move(output), std::forward<Backward>(backward), [this] {
      std::vector<Edge> edges;
      edges.reserve(given_.size());
      for (const Tensor& operand : given_) edges.push_back(edge_to(operand));
      return edges;
    });
  }

 private:
  const OpDescriptor& op_;
  TraceRange range_;
  std::span<const Tensor> given_;
  std::vector<const Tensor*> operands_;
  std::vector<Tensor> casts_;
  bool recording_ = false;
};

}  // namespace lockstep::autograd
