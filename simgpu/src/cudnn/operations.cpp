// Stands in for lockstep's layer over cuDNN in builds with a simulated GPU.

#include "backend/cpu/families.hpp"
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
    Convolution& family = cpu_convolution();
    switch (direction) {
      case ConvDirection::forward:
        return family.forward(arrays.result, arrays.image, arrays.weight, {}, geometry, {});
      case ConvDirection::backward_data:
        return family.backward_data(arrays.image, arrays.result, arrays.weight, geometry, {});
      case ConvDirection::backward_weight:
        return family.backward_weight(arrays.weight, arrays.result, arrays.image, geometry, false,
                                      {});
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
                         cpu_attention().forward(arrays.out, arrays.lse, arrays.q, arrays.k,
                                                 arrays.v, arrays.mask, options, {});
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
                         cpu_attention().backward(arrays.dq, arrays.dk, arrays.dv, arrays.dout,
                                                  arrays.q, arrays.k, arrays.v, arrays.out,
                                                  arrays.lse, arrays.mask, options, {});
                       });
  return true;
}

}  // namespace lockstep::backend::cudnn
