#include "checkpoint/told_values.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/checkpoint/states.hpp"
#include "lockstep/core/error.hpp"

// A tensor of a program's own.

namespace lockstep::checkpoint {

TensorState state_of(Tensor& tensor) {
  LOCKSTEP_CHECK(tensor.defined(), InvalidArgument,
                 "a checkpoint with a tensor that is undefined; give it its values first");
  return {
      .pieces =
          [&tensor] { return std::vector<Piece>{{.name = "value", .tensor = tensor.detach()}}; },
      .load =
          [&tensor](const NamedTensors& tensors) {
            LOCKSTEP_CHECK(tensors.size() == 1 && tensors[0].first == "value", InvalidArgument,
                           "not the state of one tensor, which has the name \"value\": ",
                           tensors.empty() ? "nothing" : tensors[0].first);
            const Tensor& saved = tensors[0].second;
            LOCKSTEP_CHECK(saved.shape() == tensor.shape() && saved.dtype() == tensor.dtype(),
                           InvalidArgument, "value: ", saved.dtype(), " ", saved.shape(),
                           " there, ", tensor.dtype(), " ", tensor.shape(), " here");
            const NoGradGuard no_recording;
            tensor.copy_(saved);
          },
      .told =
          [&tensor] {
            return told_values({&tensor, 1});
          }};
}

}  // namespace lockstep::checkpoint
