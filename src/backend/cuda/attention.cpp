#include "backend/attention.hpp"

#include "backend/cuda/composed_attention.hpp"
#include "backend/cuda/families.hpp"

namespace lockstep::backend {
namespace {

class CudaAttention final : public Attention {
 public:
  void forward(const ArrayView& out, const ArrayView& lse, const ArrayView& q, const ArrayView& k,
               const ArrayView& v, const ArrayView& mask, AttentionOptions options,
               StreamRef stream) override {
    if (out.numel() == 0) return;
    const cudnn::AttentionArrays arrays{
        .q = q, .k = k, .v = v, .out = out, .lse = lse, .mask = mask};
    if (!cudnn::attention_forward(arrays, options, stream))
      composed_attention(arrays, options, stream);
  }

  void backward(const ArrayView& dq, const ArrayView& dk, const ArrayView& dv,
                const ArrayView& dout, const ArrayView& q, const ArrayView& k, const ArrayView& v,
                const ArrayView& out, const ArrayView& lse, const ArrayView& mask,
                AttentionOptions options, StreamRef stream) override {
    const cudnn::AttentionArrays arrays{.q = q,
                                        .k = k,
                                        .v = v,
                                        .out = out,
                                        .lse = lse,
                                        .mask = mask,
                                        .dout = dout,
                                        .dq = dq,
                                        .dk = dk,
                                        .dv = dv};
    if (!cudnn::attention_backward(arrays, options, stream))
      composed_attention_backward(arrays, options, stream);
  }
};

}  // namespace

Attention& cuda_families::attention() {
  static CudaAttention family;
  return family;
}

}  // namespace lockstep::backend
