// Stands in for lockstep's layer over cuDNN in builds with a simulated GPU.

#include "backend/backend.hpp"
#include "base/coverage.hpp"
#include "cudnn/problem_text.hpp"
#include "cudnn/queue.hpp"
#include "cudnn/support.hpp"

namespace lockstep::backend::cudnn {

std::string_view missing() { return {}; }

bool convolution(ConvDirection direction, const ConvArrays& arrays, const ConvGeometry& geometry,
                 StreamRef stream) {
  if (!simgpu::cudnn::has_convolution(arrays, geometry)) return false;
  simgpu::cover_plan(simgpu::cudnn::problem_text(direction, arrays, geometry));
  const auto run = [=] {
    const kernels::ConvolutionKernels& family = cpu().convolution;
    const ArrayView &image = arrays.image, &weight = arrays.weight, &result = arrays.result;
    switch (direction) {
      case ConvDirection::forward:
        return family.forward({.y = result, .x = image, .weight = weight, .geometry = geometry},
                              StreamRef{});
      case ConvDirection::backward_data:
        return family.backward_data(
            {.dx = image, .dy = result, .weight = weight, .geometry = geometry}, StreamRef{});
      case ConvDirection::backward_weight:
        return family.backward_weight(
            {.dweight = weight, .dy = result, .x = image, .geometry = geometry}, StreamRef{});
    }
  };
  constexpr const char* names[] = {"cudnn convolution", "cudnn convolution backward (data)",
                                   "cudnn convolution backward (weight)"};
  simgpu::cudnn::queue(names[static_cast<std::size_t>(direction)],
                       {{"the image", arrays.image, direction == ConvDirection::backward_data},
                        {"the weight", arrays.weight, direction == ConvDirection::backward_weight},
                        {"the result", arrays.result, direction == ConvDirection::forward}},
                       stream, run);
  return true;
}

bool attention_forward(const AttentionArrays& arrays, AttentionOptions options, StreamRef stream) {
  if (!simgpu::cudnn::has_attention(arrays, false)) return false;
  simgpu::cover_plan(simgpu::cudnn::problem_text(arrays, options));
  simgpu::cudnn::queue("cudnn attention",
                       {{"q", arrays.q},
                        {"k", arrays.k},
                        {"v", arrays.v},
                        {"the mask", arrays.mask},
                        {"out", arrays.out, true},
                        {"lse", arrays.lse, true}},
                       stream, [=] {
                         cpu().attention.forward({.out = arrays.out,
                                                  .lse = arrays.lse,
                                                  .q = arrays.q,
                                                  .k = arrays.k,
                                                  .v = arrays.v,
                                                  .mask = arrays.mask,
                                                  .options = options},
                                                 StreamRef{});
                       });
  return true;
}

bool attention_backward(const AttentionArrays& arrays, AttentionOptions options, StreamRef stream) {
  if (!simgpu::cudnn::has_attention(arrays, true)) return false;
  simgpu::cover_plan(simgpu::cudnn::problem_text(arrays, options));
  simgpu::cudnn::queue("cudnn attention backward",
                       {{"q", arrays.q},
                        {"k", arrays.k},
                        {"v", arrays.v},
                        {"out", arrays.out},
                        {"lse", arrays.lse},
                        {"the mask", arrays.mask},
                        {"dout", arrays.dout},
                        {"dq", arrays.dq, true},
                        {"dk", arrays.dk, true},
                        {"dv", arrays.dv, true}},
                       stream, [=] {
                         cpu().attention.backward({.dq = arrays.dq,
                                                   .dk = arrays.dk,
                                                   .dv = arrays.dv,
                                                   .dout = arrays.dout,
                                                   .q = arrays.q,
                                                   .k = arrays.k,
                                                   .v = arrays.v,
                                                   .out = arrays.out,
                                                   .lse = arrays.lse,
                                                   .mask = arrays.mask,
                                                   .options = options},
                                                  StreamRef{});
                       });
  return true;
}

}  // namespace lockstep::backend::cudnn
