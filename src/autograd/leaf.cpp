#include "lockstep/autograd/leaf.hpp"

#include <algorithm>

#include "lockstep/memory/block_observer.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::autograd {

LeafNode::LeafNode(const Tensor& tensor)
    : Node("leaf"), shape_(tensor.shape()), options_(tensor.options()) {}

const Tensor& LeafNode::none() noexcept {
  static const Tensor undefined;
  return undefined;
}

void LeafNode::check_fits(const Tensor& tensor, std::string_view what) const {
  LOCKSTEP_CHECK(tensor.shape() == shape_ && tensor.dtype() == options_.dtype &&
                     tensor.device() == options_.device,
                 InvalidArgument, what, " of shape ", tensor.shape(), ", ", tensor.dtype(), " on ",
                 tensor.device(), " does not fit a tensor of shape ", shape_, ", ", options_.dtype,
                 " on ", options_.device);
}

void LeafNode::set_gradient(const Tensor& gradient) {
  if (!gradient.defined()) return clear_gradient();
  check_fits(gradient, "gradient");
  if (!has_sink_) {
    gradient_ = gradient.contiguous();
    return;
  }
  if (gradient.data_ptr() != gradient_.data_ptr()) {
    discard_memory(gradient_.data_ptr(), gradient_.nbytes(), gradient_.device());
    gradient_.copy_(gradient);
  }
  fresh_ = false;
}

void LeafNode::clear_gradient() noexcept {
  if (!has_sink_) {
    gradient_ = Tensor();
  } else if (!std::exchange(fresh_, true)) {
    discard_memory(gradient_.data_ptr(), gradient_.nbytes(), gradient_.device());
  }
}

void LeafNode::set_sink(const Tensor& sink) {
  const Tensor present = gradient();
  if (sink.defined()) {
    check_fits(sink, "gradient sink");
    LOCKSTEP_CHECK(sink.is_contiguous(), InvalidArgument, "a gradient sink must be contiguous");
    if (present.defined()) Tensor(sink).copy_(present);
  }
  has_sink_ = sink.defined();
  fresh_ = has_sink_ && !present.defined();
  gradient_ = has_sink_ ? sink : present.defined() ? present.clone() : Tensor();
}

std::uint64_t LeafNode::add_hook(Hook hook) {
  hooks_.emplace_back(next_hook_, std::move(hook));
  return next_hook_++;
}

void LeafNode::remove_hook(std::uint64_t id) noexcept {
  std::erase_if(hooks_, [id](const auto& entry) { return entry.first == id; });
}

void LeafNode::accumulate(Tensor contribution) {
  check_fits(contribution, "gradient");
  if (has_sink_ && fresh_) {
    gradient_.copy_(contribution);
    fresh_ = false;
  } else if (gradient_.defined()) {
    gradient_.add_(contribution);
  } else {
    // Keep it as it is only if nobody else can see or change it.
    const bool alone = contribution.use_count() == 1 && contribution.is_contiguous() &&
                       contribution.impl().storage->use_count() == 1;
    gradient_ = alone ? std::move(contribution) : contribution.clone();
  }
}

GradientTarget LeafNode::target() const {
  if (gradient_.defined()) return {gradient_, !fresh_};
  return {empty(shape_, options_), false};
}

void LeafNode::commit(const Tensor& written) {
  fresh_ = false;
  if (!gradient_.defined()) gradient_ = written;
  gradient_.impl().storage->bump_version();
}

void LeafNode::finish() {
  if (gradient_.defined() && !fresh_)
    complete_memory(gradient_.data_ptr(), gradient_.nbytes(), gradient_.device());
  // A hook may remove itself or add others, so it is copied, and found again by its number.
  for (std::size_t i = 0; i < hooks_.size();) {
    const auto [id, hook] = hooks_[i];
    hook(*this);
    while (i < hooks_.size() && hooks_[i].first <= id) ++i;
  }
}

LeafNode& leaf_of(const Tensor& tensor) {
  LOCKSTEP_CHECK(tensor.requires_grad(), InvalidArgument, "the tensor of shape ", tensor.shape(),
                 " does not require a gradient");
  auto* node = static_cast<Node*>(tensor.impl().node.get());
  LOCKSTEP_CHECK(node->is_leaf(), InvalidArgument, "the tensor was computed by ", node->name(),
                 "; only leaves hold gradients");
  return static_cast<LeafNode&>(*node);
}

}  // namespace lockstep::autograd
