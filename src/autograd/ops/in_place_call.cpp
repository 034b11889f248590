#include "autograd/ops/in_place_call.hpp"

#include "autograd/ops/common.hpp"
#include "tensor/overlap.hpp"
#include "tensor/write_note.hpp"

namespace lockstep::autograd {

void begin_write(std::string_view op, const Tensor& tensor) {
  LOCKSTEP_CHECK(
      !tensor.requires_grad() || !grad_enabled(), InvalidArgument, op,
      ": a tensor that requires a gradient cannot be changed in place while recording is "
      "on; use NoGradGuard, or the op that returns a new tensor");
  note_write(tensor);
}

InPlaceCall::InPlaceCall(const OpDescriptor& op, const Tensor& changed)
    : op_(op), range_(op.name), changed_(changed) {
  check_operand(op, changed);
}

ArrayView InPlaceCall::operand(const Tensor& other) const {
  const Tensor* const operands[] = {&changed_, &other};
  detail::check_operands(op_, operands);
  if (thread_modes.noting_reads) detail::note_reads(op_, std::span(operands).last(1));
  check_fits(other);
  check_written_once();
  ArrayView read = broadcast_view(other, changed_.shape());
  LOCKSTEP_CHECK(!is_overwritten(read, changed_.view()), InvalidArgument, name(),
                 ": the operand shares memory with the tensor that is changed, and elements would "
                 "be overwritten before they are read; clone() the operand first");
  return read;
}

void InPlaceCall::check_fits(const Tensor& other) const {
  const Shape &to = changed_.shape(), &from = other.shape();
  LOCKSTEP_CHECK(to == from || broadcast_shapes(to, from) == to, InvalidArgument, name(),
                 ": shape ", from, " does not fit into ", to);
  LOCKSTEP_CHECK(!recording(other), InvalidArgument, name(),
                 ": the operand requires a gradient, but in-place ops are not recorded; detach() "
                 "it, use NoGradGuard, or the op that returns a new tensor");
}

void InPlaceCall::check_written_once() const {
  LOCKSTEP_CHECK(
      !has_repeated_elements(changed_.view()), InvalidArgument, name(), ": several elements of ",
      changed_.shape(), " lie at one place (strides ", changed_.strides(),
      ", as expand() makes them); change the tensor before it is expanded, or a clone()");
}

ArrayView InPlaceCall::write() const {
  begin_write(name(), changed_);
  return changed_.view();
}

}  // namespace lockstep::autograd
