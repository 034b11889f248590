#include "train/step_inputs.hpp"

#include <algorithm>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/tensor/factories.hpp"
#include "tensor/overlap.hpp"

namespace lockstep::train {
namespace {

/// The elements of an expanded tensor, each once.
Tensor unexpanded(const Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  Shape shape = tensor.shape();
  for (int i = 0; i < shape.size(); ++i)
    if (tensor.strides()[i] == 0 && shape[i] > 1) shape[i] = 1;
  return make_view(tensor, tensor.data_ptr(), shape, tensor.strides());
}

Tensor empty_with_layout_of(const Tensor& tensor) {
  if (tensor.is_contiguous()) return empty(tensor.shape(), tensor.options());
  std::int64_t last = 0;  // no extent is 0: those are contiguous
  for (int i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.strides()[i];
  const Tensor memory = empty({last + 1}, tensor.options());
  return make_view(memory, memory.data_ptr(), tensor.shape(), tensor.strides());
}

}  // namespace

StepForm::StepForm(std::span<const Tensor> inputs, Device device)
    : grad_(grad_enabled()),
      autocast_(autograd::thread_modes.autocast_dtype),
      backend_(&backend::of(device)) {
  for (const Tensor& input : inputs)  // strides of contiguous ones may differ where nothing follows
    inputs_.push_back(
        {input.shape(), input.is_contiguous() ? Strides() : input.strides(), input.dtype()});
}

std::string refusal_of(std::span<const Tensor> inputs, Device device) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    if (!input.defined()) return detail::concat("input ", i, " is undefined");
    if (input.device() != device)
      return detail::concat("input ", i, " is on ", input.device(), ", the step computes on ",
                            device, "; bring it there before");
    if (input.requires_grad())
      return detail::concat("input ", i, " requires a gradient, which a graph would not give");
    if (!input.is_contiguous() && has_repeated_elements(unexpanded(input).view()))
      return detail::concat("input ", i, " has elements that overlap (strides ", input.strides(),
                            "); give a clone()");
  }
  return {};
}

void StaticInputs::make_like(std::span<const Tensor> inputs) {
  for (const Tensor& input : inputs) {
    tensors_.push_back(empty_with_layout_of(input));
    places_.push_back(unexpanded(tensors_.back()));
  }
}

/// What was returned before may be an input again, and lie where an input is written to.
void StaticInputs::take_in(std::span<const Tensor> inputs) {
  const NoGradGuard no_recording;
  std::vector<Tensor> values;
  for (const Tensor& input : inputs) {
    values.push_back(unexpanded(input));
    const bool is_static = std::ranges::any_of(tensors_, [&](const Tensor& place) {
      return place.impl().storage.get() == input.impl().storage.get();
    });
    if (is_static) values.back() = values.back().clone();
  }
  for (std::size_t i = 0; i < values.size(); ++i) places_[i].copy_(values[i]);
}

}  // namespace lockstep::train
