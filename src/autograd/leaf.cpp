#include "lockstep/autograd/leaf.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "autograd/read_notes.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/gradient_hooks.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "memory/step_rehearsal.hpp"
#include "tensor/ownership.hpp"

namespace lockstep::autograd {

void GradientSink::before_change(std::size_t, const Tensor& value) {
  LOCKSTEP_THROW(InvalidArgument, "a leaf whose gradient has a place of its own cannot become of ",
                 "shape ", value.shape(), ", ", value.dtype(), " on ", value.device(),
                 "; give the gradient back first");
}

LeafNode::LeafNode(const Tensor& tensor)
    : Node("leaf"),
      shape_(tensor.shape()),
      shapes_{OutputShape(shape_)},
      options_(tensor.options()) {
  set_output_shapes(shapes_.data());
}

bool LeafNode::has_form(const Shape& shape, TensorOptions options) const {
  return shape == shape_ && options.dtype == options_.dtype && options.device == options_.device;
}

void LeafNode::check_fits(const Shape& shape, TensorOptions options, std::string_view what) const {
  LOCKSTEP_CHECK(has_form(shape, options), InvalidArgument, what, " of shape ", shape, ", ",
                 options.dtype, " on ", options.device, " does not fit a tensor of shape ", shape_,
                 ", ", options_.dtype, " on ", options_.device);
}

Tensor LeafNode::memory_of(GradientSink& sink, std::size_t key) const {
  Tensor memory = sink.memory_for(key);
  check_fits(memory, "gradient sink");
  LOCKSTEP_CHECK(memory.is_contiguous(), InvalidArgument, "a gradient sink must be contiguous");
  return memory;
}

void LeafNode::set_gradient(const Tensor& gradient) {
  join_recording(false);
  if (!gradient.defined()) return clear_gradient();
  check_fits(gradient, "gradient");
  if (!sink_) {
    hold(gradient.contiguous());
    return;
  }
  Tensor memory = gradient_.defined() ? gradient_ : memory_of(*sink_, sink_key_);
  if (gradient.data_ptr() != memory.data_ptr()) {
    const ReadNotesGuard not_of_own(false);
    if (gradient_.defined()) discard_memory(memory.data_ptr(), memory.nbytes(), memory.device());
    memory.copy_(gradient);
  }
  hold(std::move(memory));
}

void LeafNode::hold(Tensor gradient) noexcept {
  gradient.impl().storage->set_holds_gradient();
  gradient_ = std::move(gradient);
  is_zero_ = false;
}

/// Holds what has the same values.
void LeafNode::move_to(Tensor memory) noexcept {
  const bool was_zero = is_zero_;
  hold(std::move(memory));
  is_zero_ = was_zero;
}

void LeafNode::zero_gradient() {
  if (sink_) sink_->on_clear(sink_key_);
  if (!gradient_.defined()) return;
  join_recording(true);
  const NoGradGuard no_recording;
  discard_memory(gradient_.data_ptr(), gradient_.nbytes(), gradient_.device());
  gradient_.zero_();
  is_zero_ = true;
}

void LeafNode::clear_gradient() noexcept {
  join_recording(false);
  if (sink_) sink_->on_clear(sink_key_);
  const Tensor present = std::exchange(gradient_, Tensor());
  if (StepRehearsal* const rehearsal = StepRehearsal::current(); rehearsal && present.defined())
    rehearsal->keep(this, present.impl().storage);
  if (sink_ && present.defined())
    discard_memory(present.data_ptr(), present.nbytes(), present.device());
}

void LeafNode::set_sink(GradientSink& sink, std::size_t key) {
  const NoGradGuard no_recording;
  const ReadNotesGuard not_of_own(false);
  if (gradient_.defined()) {
    Tensor memory = memory_of(sink, key);
    if (memory.data_ptr() != gradient_.data_ptr()) memory.copy_(gradient_);
    gradient_.record_stream(current_stream(gradient_.device()));  // may be another's memory
    move_to(std::move(memory));
  }
  GradientSink* const former = std::exchange(sink_, &sink);
  const std::size_t former_key = std::exchange(sink_key_, key);
  if (former && former != &sink) former->on_taken(former_key);
}

void LeafNode::release_sink(const GradientSink& sink) {
  if (sink_ != &sink) return;
  sink_ = nullptr;
  if (!gradient_.defined()) return;
  gradient_.record_stream(current_stream(gradient_.device()));  // the sink may free it
  const ReadNotesGuard not_of_own(false);
  move_to(gradient_.clone());
}

std::uint32_t LeafNode::follow(const Tensor& value) {
  auto known = std::ranges::find_if(
      shapes_, [&](const OutputShape& shape) { return shape == value.shape(); });
  if (known == shapes_.end()) {
    shapes_.emplace_back(value.shape());
    set_output_shapes(shapes_.data());
    known = std::prev(shapes_.end());
  }
  const auto output = static_cast<std::uint32_t>(known - shapes_.begin());
  if (has_form(value.shape(), value.options())) return output;
  LOCKSTEP_CHECK(!gradient_.defined() || value.shape() == shape_, InvalidArgument,
                 "set_data: the tensor of shape ", shape_, " has a gradient, and cannot become of ",
                 "shape ", value.shape(), " before that is cleared");
  if (sink_) sink_->before_change(sink_key_, value);
  const NoGradGuard no_recording;
  const bool was_zero = is_zero_;
  Tensor converted = gradient_.defined() ? gradient_.to(value.device(), value.dtype()) : Tensor();
  shape_ = value.shape();
  options_ = value.options();
  gradient_ = Tensor();
  if (converted.defined()) set_gradient(converted);
  is_zero_ = was_zero;
  return output;
}

std::uint64_t LeafNode::add_hook(Hook hook) {
  hooks_.emplace_back(next_hook_, std::move(hook));
  return next_hook_++;
}

void LeafNode::remove_hook(std::uint64_t id) noexcept {
  std::erase_if(hooks_, [id](const auto& entry) { return entry.first == id; });
}

bool LeafNode::collects() const noexcept { return hooks() && !hooks()->empty(); }

void LeafNode::collect(Tensor contribution) {
  collected_ = collected_.defined() ? collected_.clone().add_(contribution) : contribution;
}

void LeafNode::accumulate(Tensor contribution) {
  check_fits(contribution, "gradient");
  if (frozen_) return;
  if (collects()) [[unlikely]]
    return collect(std::move(contribution));
  add(std::move(contribution));
}

void LeafNode::add(Tensor contribution) {
  join_recording(true);
  if (gradient_.defined()) {
    gradient_.add_(contribution);
    is_zero_ = false;
  } else if (sink_) {
    Tensor memory = memory_of(*sink_, sink_key_);
    memory.copy_(contribution);
    hold(std::move(memory));
  } else {
    // Keep it as it is only if nobody else can see or change it.
    const bool alone = is_sole_owner(contribution) && contribution.is_contiguous();
    hold(alone ? std::move(contribution) : contribution.clone());
  }
}

GradientTarget LeafNode::target(const Shape& shape, TensorOptions options) {
  check_fits(shape, options, "gradient");
  join_recording(true);
  if (frozen_ || collects()) return {empty(shape_, options_), false};
  if (gradient_.defined()) return {gradient_, true};
  return {sink_ ? memory_of(*sink_, sink_key_) : empty(shape_, options_), false};
}

void LeafNode::commit(const Tensor& written) {
  if (frozen_) return;
  if (collects()) [[unlikely]]
    return collect(written);
  if (!gradient_.defined()) hold(written);
  is_zero_ = false;
  gradient_.impl().storage->bump_version();
}

void LeafNode::finish() {
  if (frozen_) {
    collected_ = Tensor();
    return;
  }
  if (collected_.defined()) [[unlikely]] {
    if (hooks()) hooks()->run({&collected_, 1});
    add(std::exchange(collected_, Tensor()));
  }
  // A hook may remove itself or add others, so it is copied, and found again by its number.
  for (std::size_t i = 0; i < hooks_.size();) {
    const auto [id, hook] = hooks_[i];
    hook(*this);
    while (i < hooks_.size() && hooks_[i].first <= id) ++i;
  }
  // Not before: hooks may overwrite what the backward has computed.
  if (gradient_.defined())
    complete_memory(gradient_.data_ptr(), gradient_.nbytes(), gradient_.device());
  if (sink_) sink_->on_final(sink_key_);
}

LeafNode& leaf_of(const Tensor& tensor) {
  LOCKSTEP_CHECK(tensor.requires_grad(), InvalidArgument, "the tensor of shape ", tensor.shape(),
                 " does not require a gradient");
  auto* node = static_cast<Node*>(tensor.impl().node.get());
  LOCKSTEP_CHECK(node->is_leaf(), InvalidArgument, "the tensor was computed by ", node->name(),
                 "; only leaves hold gradients");
  return static_cast<LeafNode&>(*node);
}

void zero_gradient_of(const Tensor& tensor) {
  auto* const node = static_cast<Node*>(tensor.impl().node.get());
  if (node && node->is_leaf()) static_cast<LeafNode*>(node)->zero_gradient();
}

GradientShare share_of(const Tensor& tensor) {
  if (!tensor.is_leaf() || !tensor.requires_grad()) return GradientShare::whole;
  return leaf_of(tensor).share();
}

}  // namespace lockstep::autograd
