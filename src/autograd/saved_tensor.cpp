#include "lockstep/autograd/saved_tensor.hpp"

namespace lockstep::autograd {

void SavedTensor::throw_changed(std::string_view op) const {
  LOCKSTEP_THROW(InvalidArgument, "backward of ", op, ": a saved tensor of shape ", tensor_.shape(),
                 " was changed in place after the forward (version ", version_, " then, ",
                 tensor_.impl().storage->version(), " now); clone() it before the change");
}

}  // namespace lockstep::autograd
