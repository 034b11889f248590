#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// What a captured step is given.

namespace lockstep::train {

/// What a graph depends on: the form of the inputs, the calling thread's modes and the backend.
class StepForm {
 public:
  /// @param device computes the step.
  StepForm(std::span<const Tensor> inputs, Device device);
  bool operator==(const StepForm&) const = default;

 private:
  struct Input {
    Shape shape;
    Strides strides;
    DType dtype;
    bool operator==(const Input&) const = default;
  };
  std::vector<Input> inputs_;
  bool grad_ = true;
  std::array<DType, 2> autocast_{};
  const backend::Backend* backend_;
};

/// Why a step of such inputs is not captured; empty if it may be.
std::string refusal_of(std::span<const Tensor> inputs, Device device);

/// Where a graph reads its inputs: arrays of its own, laid out as the caller's, since the order in
/// which kernels add depends on that.
class StaticInputs {
 public:
  bool empty() const noexcept { return tensors_.empty(); }
  /// Allocates arrays for inputs of this form.
  void make_like(std::span<const Tensor> inputs);
  /// Copies the values in.
  void take_in(std::span<const Tensor> inputs);
  std::span<const Tensor> tensors() const noexcept { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
  std::vector<Tensor> places_;  // their elements, each once
};

}  // namespace lockstep::train
