#include "lockstep/parallel/writable_buffer.hpp"

#include "lockstep/autograd/record.hpp"
#include "lockstep/core/error.hpp"
#include "tensor/write_note.hpp"

namespace lockstep::parallel {

comm::Buffer writable_buffer(const Tensor& x) {
  LOCKSTEP_CHECK(x.is_contiguous(), InvalidArgument, "writable_buffer: the tensor of shape ",
                 x.shape(), " has strides ", x.strides(),
                 "; a collective writes contiguous memory, such as contiguous() gives");
  LOCKSTEP_CHECK(!autograd::recording(x), InvalidArgument,
                 "writable_buffer: a tensor that requires a gradient cannot be changed in place "
                 "while recording is on; use NoGradGuard");
  note_write(x);
  return {x.data_ptr(), x.numel(), x.dtype()};
}

}  // namespace lockstep::parallel
