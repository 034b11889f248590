// Stands in for lockstep's layer over cuDNN in builds with a simulated GPU.

#include "backend/backend.hpp"
#include "base/coverage.hpp"
#include "cudnn/problem_text.hpp"
#include "cudnn/queue.hpp"
#include "cudnn/support.hpp"

namespace lockstep::backend::cudnn {
namespace {

using simgpu::profile::Fields;

std::string list(const Dims& extents) {
  std::string text;
  for (const std::int64_t extent : extents)
    text += (text.empty() ? "" : ",") + std::to_string(extent);
  return '[' + text + ']';
}

/// Multiplications and additions of the products alone.
double flops_of(const ConvArrays& arrays) {
  const ArrayView &weight = arrays.weight, &result = arrays.result;
  double products = 2 * double(result.numel());
  for (int d = 1; d < weight.rank(); ++d) products *= double(weight.shape[d]);
  return products;
}

Fields profile_of(ConvDirection direction, const ConvArrays& arrays, const ConvGeometry& geometry) {
  if (!simgpu::profile::is_on()) return {};
  constexpr const char* passes[] = {"forward", "input", "weight"};
  return Fields()
      .add("kind", "convolution")
      .add("pass", passes[static_cast<std::size_t>(direction)])
      .add("dtype", name(arrays.image.dtype))
      .raw("shape", '{' +
                        Fields()
                            .raw("image", list(arrays.image.shape))
                            .raw("weight", list(arrays.weight.shape))
                            .raw("result", list(arrays.result.shape))
                            .add("groups", geometry.groups)
                            .text() +
                        '}')
      .add("flops", flops_of(arrays));
}

/// Of a causal product only the half that is needed counts.
Fields profile_of(const AttentionArrays& arrays, const AttentionOptions& options,
                  bool is_backward) {
  if (!simgpu::profile::is_on()) return {};
  const std::int64_t batch = arrays.q.shape[0], heads = arrays.q.shape[1],
                     queries = arrays.q.shape[2], keys = arrays.k.shape[2],
                     width = arrays.q.shape[3];
  const double product = 2 * double(batch) * double(heads) * double(queries) * double(keys) *
                         double(width) * (options.causal ? 0.5 : 1);
  return Fields()
      .add("kind", "attention")
      .add("batch", batch)
      .add("heads", heads)
      .add("kv_heads", arrays.k.shape[1])
      .add("queries", queries)
      .add("keys", keys)
      .add("width", width)
      .add("causal", options.causal)
      .add("backward", is_backward)
      .add("dtype", name(arrays.q.dtype))
      .add("flops", (is_backward ? 5 : 2) * product);
}

}  // namespace

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
                       stream, run, profile_of(direction, arrays, geometry));
  return true;
}

bool attention_forward(const AttentionArrays& arrays, AttentionOptions options, StreamRef stream) {
  if (!simgpu::cudnn::has_attention(arrays, false)) return false;
  simgpu::cover_plan(simgpu::cudnn::problem_text(arrays, options));
  simgpu::cudnn::queue(
      "cudnn attention",
      {{"q", arrays.q},
       {"k", arrays.k},
       {"v", arrays.v},
       {"the mask", arrays.mask},
       {"out", arrays.out, true},
       {"lse", arrays.lse, true}},
      stream,
      [=] {
        cpu().attention.forward({.out = arrays.out,
                                 .lse = arrays.lse,
                                 .q = arrays.q,
                                 .k = arrays.k,
                                 .v = arrays.v,
                                 .mask = arrays.mask,
                                 .options = options},
                                StreamRef{});
      },
      profile_of(arrays, options, false));
  return true;
}

bool attention_backward(const AttentionArrays& arrays, AttentionOptions options, StreamRef stream) {
  if (!simgpu::cudnn::has_attention(arrays, true)) return false;
  simgpu::cover_plan(simgpu::cudnn::problem_text(arrays, options));
  simgpu::cudnn::queue(
      "cudnn attention backward",
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
      stream,
      [=] {
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
      },
      profile_of(arrays, options, true));
  return true;
}

}  // namespace lockstep::backend::cudnn
