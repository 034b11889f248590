#include "autograd/ops/common.hpp"
#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "tensor/read_note.hpp"

namespace lockstep {

using namespace autograd;

Tensor& Tensor::set_requires_grad(bool required) {
  if (required == requires_grad()) return *this;
  if (!required) {
    LOCKSTEP_CHECK(is_leaf(), InvalidArgument,
                   "a computed tensor always requires a gradient; detach() it instead");
    leaf_of(*this).set_frozen(true);
    impl().frozen = true;
    return *this;
  }
  if (impl().node) {
    impl().frozen = false;
    leaf_of(*this).set_frozen(false);
    return *this;
  }
  LOCKSTEP_CHECK(is_floating(dtype()), InvalidArgument, "a tensor of dtype ", dtype(),
                 " cannot require a gradient; only floating dtypes can");
  impl().node = make_intrusive<LeafNode>(*this);
  impl().output_index = 0;
  return *this;
}

bool Tensor::is_leaf() const { return !requires_grad() || node_of(*this)->is_leaf(); }

Tensor Tensor::grad() const {
  if (!requires_grad()) return {};
  LeafNode& leaf = leaf_of(*this);
  leaf.note_use();
  return leaf.gradient();
}

void Tensor::set_grad(const Tensor& grad) {
  if (thread_modes.noting_reads) note_read(grad, "set_grad");
  if (grad.defined() || (requires_grad() && !is_leaf())) return leaf_of(*this).set_gradient(grad);
  if (impl().node) static_cast<LeafNode&>(*impl().node).clear_gradient();
}

void Tensor::backward(const Tensor& gradient, bool retain_graph) const {
  LOCKSTEP_CHECK(defined(), InvalidArgument, "backward: the tensor is undefined");
  LOCKSTEP_CHECK(requires_grad(), InvalidArgument,
                 "backward: no operand of this tensor requires a gradient; to a loss that may be a "
                 "constant, as without any target, add 0 times the sum of what the model gave");
  Tensor seed = gradient;
  if (seed.defined()) {
    check_alike("backward", *this, seed);
    LOCKSTEP_CHECK(seed.shape() == shape(), InvalidArgument, "backward: the gradient has shape ",
                   seed.shape(), ", the tensor ", shape());
  } else {
    LOCKSTEP_CHECK(numel() == 1, InvalidArgument, "backward: a tensor of shape ", shape(),
                   " needs a gradient; only a single element may go without");
    seed = ones(shape(), options());
  }
  Engine::run({this, 1}, {&seed, 1}, retain_graph);
}

Tensor Tensor::detach() const { return make_alias(*this); }

Tensor& Tensor::set_data(const Tensor& value) {
  LOCKSTEP_CHECK(is_leaf(), InvalidArgument, "set_data: only a leaf can take another array");
  LOCKSTEP_CHECK(!requires_grad() || is_floating(value.dtype()), InvalidArgument,
                 "set_data: dtype ", value.dtype(),
                 " cannot have the gradient that this tensor requires");
  TensorImpl& to = impl();
  if (to.node && is_floating(value.dtype()))
    to.output_index = static_cast<LeafNode&>(*to.node).follow(value);
  else
    to.node.reset();
  const TensorImpl& from = value.impl();
  to.storage = from.storage;
  to.data = from.data;
  to.numel = from.numel;
  to.dtype = from.dtype;
  to.contiguous = from.contiguous;
  to.shape = from.shape;
  to.strides = from.strides;
  to.frozen = to.frozen && to.node;
  ++to.exchanges;
  return *this;
}

}  // namespace lockstep
