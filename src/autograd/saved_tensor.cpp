#include "lockstep/autograd/saved_tensor.hpp"

#include "lockstep/tensor/factories.hpp"

namespace lockstep::autograd {

SavedTensor::SavedTensor(const Tensor& tensor) {
  if (!tensor.defined()) return;
  tensor_ = tensor.requires_grad() ? tensor.detach() : tensor;
  version_ = tensor.impl().storage->version();
}

void SavedTensor::throw_changed(std::string_view op) const {
  LOCKSTEP_THROW(InvalidArgument, "backward of ", op, ": a saved tensor of shape ", tensor_.shape(),
                 " was changed in place after the forward (version ", version_, " then, ",
                 tensor_.impl().storage->version(), " now); clone() it before the change");
}

}  // namespace lockstep::autograd
