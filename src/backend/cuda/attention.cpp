#include "arguments/attention.hpp"

#include "backend/cuda/composed_attention.hpp"

namespace lockstep::cuda_kernels {
void attention::forward(const kernels::AttentionArguments& a, StreamRef stream) {
  if (a.out.numel() == 0) return;
  const backend::cudnn::AttentionArrays arrays{
      .q = a.q, .k = a.k, .v = a.v, .out = a.out, .lse = a.lse, .mask = a.mask};
  if (!backend::cudnn::attention_forward(arrays, a.options, stream))
    composed_attention(arrays, a.options, stream);
}

void attention::backward(const kernels::AttentionBackwardArguments& a, StreamRef stream) {
  const backend::cudnn::AttentionArrays arrays{.q = a.q,
                                               .k = a.k,
                                               .v = a.v,
                                               .out = a.out,
                                               .lse = a.lse,
                                               .mask = a.mask,
                                               .dout = a.dout,
                                               .dq = a.dq,
                                               .dk = a.dk,
                                               .dv = a.dv};
  if (!backend::cudnn::attention_backward(arrays, a.options, stream))
    composed_attention_backward(arrays, a.options, stream);
}

}  // namespace lockstep::cuda_kernels
