#include "arguments/attention.hpp"

#include "backend/cuda/composed_attention.hpp"
#include "backend/cuda/families.hpp"

namespace lockstep::backend {
namespace {

void forward(const kernels::AttentionArguments& a, StreamRef stream) {
  if (a.out.numel() == 0) return;
  const cudnn::AttentionArrays arrays{
      .q = a.q, .k = a.k, .v = a.v, .out = a.out, .lse = a.lse, .mask = a.mask};
  if (!cudnn::attention_forward(arrays, a.options, stream))
    composed_attention(arrays, a.options, stream);
}

void backward(const kernels::AttentionBackwardArguments& a, StreamRef stream) {
  const cudnn::AttentionArrays arrays{.q = a.q,
                                      .k = a.k,
                                      .v = a.v,
                                      .out = a.out,
                                      .lse = a.lse,
                                      .mask = a.mask,
                                      .dout = a.dout,
                                      .dq = a.dq,
                                      .dk = a.dk,
                                      .dv = a.dv};
  if (!cudnn::attention_backward(arrays, a.options, stream))
    composed_attention_backward(arrays, a.options, stream);
}

}  // namespace

kernels::AttentionKernels cuda_families::attention() {
  return {.forward = forward, .backward = backward};
}

}  // namespace lockstep::backend
