#include "lockstep/autograd/saved_tensor.hpp"

#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/recomputation.hpp"
#include "tensor/read_note.hpp"

namespace lockstep::autograd {

void SavedTensor::leave() { thread_modes.recomputation->add(tensor_, stamp_); }

void SavedTensor::tell() const { note_read(tensor_, Engine::running_op()); }

const Tensor& SavedTensor::recomputed() const {
  if (stamp_ == left_to_recomputation) return Recomputation::value_of(tensor_);
  LOCKSTEP_CHECK(!tensor_.impl().storage->holds_gradient(), InvalidArgument, "backward of ",
                 Engine::running_op(), ": a saved tensor of shape ", tensor_.shape(),
                 " is a gradient, to which this backward or an earlier one has added; clone() the "
                 "gradient before the forward reads it");
  LOCKSTEP_THROW(InvalidArgument, "backward of ", Engine::running_op(),
                 ": a saved tensor of shape ", tensor_.shape(),
                 " was changed in place, or its array exchanged, after the forward; clone() it "
                 "before the change");
}

void SavedTensor::move_away() const {
  tensor_ = copied_from_gradient(tensor_);
  stamp_ = tensor_.impl().value_stamp();
}

}  // namespace lockstep::autograd
