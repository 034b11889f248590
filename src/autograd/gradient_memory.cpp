#include "lockstep/autograd/gradient_memory.hpp"

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::autograd {

Tensor copied_from_gradient(const Tensor& tensor) {
  const NoGradGuard no_recording;
  Tensor copy = empty_like(tensor);
  copy.copy_(tensor);
  return copy;
}

}  // namespace lockstep::autograd
