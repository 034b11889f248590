#include "lockstep/autograd/gradient_hooks.hpp"

#include <utility>

#include "lockstep/autograd/gradient_memory.hpp"
#include "lockstep/autograd/node.hpp"

namespace lockstep {
namespace autograd {
namespace {

void check_alike(const Tensor& replaced, const Tensor& given) {
  LOCKSTEP_CHECK(replaced.shape() == given.shape() && replaced.dtype() == given.dtype() &&
                     replaced.device() == given.device(),
                 InvalidArgument, "a hook gave a gradient of shape ", replaced.shape(), ", ",
                 replaced.dtype(), " on ", replaced.device(), " in the place of one of ",
                 given.shape(), ", ", given.dtype(), " on ", given.device());
}

}  // namespace

std::uint64_t GradientHooks::add(std::uint32_t output, Hook hook) {
  hooks_.push_back({next_id_, output, std::make_shared<Hook>(std::move(hook))});
  return next_id_++;
}

void GradientHooks::remove(std::uint64_t id) noexcept {
  std::erase_if(hooks_, [id](const Entry& entry) { return entry.id == id; });
}

void GradientHooks::run(std::span<Tensor> gradients) {
  // A hook may remove itself or add others, so it is found again by its number.
  for (std::size_t i = 0; i < hooks_.size();) {
    const Entry entry = hooks_[i];
    Tensor& gradient = gradients[entry.output];
    if (gradient.defined()) {
      Tensor result = (*entry.hook)(gradient);
      if (result.defined()) {
        check_alike(result, gradient);
        gradient = std::move(result);
      }
      // A leaf may have as its gradient what the hook returned, or what it was given.
      gradient = apart_from_gradients(gradient);
    }
    while (i < hooks_.size() && hooks_[i].id <= entry.id) ++i;
  }
}

}  // namespace autograd

HookHandle Tensor::add_hook(std::function<Tensor(const Tensor&)> hook) const {
  LOCKSTEP_CHECK(requires_grad(), InvalidArgument, "register_hook: the tensor of shape ", shape(),
                 " requires no gradient, so no hook would ever run");
  const auto node = autograd::node_of(*this);
  autograd::GradientHooks& hooks = node->make_hooks();
  const std::uint32_t output = node->is_leaf() ? 0 : impl().output_index;
  return {IntrusivePtr<RefCounted>(&hooks), hooks.add(output, std::move(hook))};
}

void HookHandle::remove() noexcept {
  if (hooks_) static_cast<autograd::GradientHooks&>(*hooks_).remove(id_);
}

}  // namespace lockstep
