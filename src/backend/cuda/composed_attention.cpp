#include "backend/cuda/composed_attention.hpp"

#include <utility>

#include "arguments/elementwise.hpp"
#include "arguments/gemm.hpp"
#include "backend/cuda/lt_matrix.hpp"
#include "cuda/attention.hpp"
#include "cuda/scratch.hpp"

namespace lockstep::cuda_kernels {
namespace {

using kernels::AttentionOptions;

DType score_dtype(DType data) { return data == DType::f64 ? DType::f64 : DType::f32; }

std::size_t bytes_of(const Shape& shape, DType dtype) {
  return static_cast<std::size_t>(numel(shape)) * size_of(dtype);
}

/// Whether products take each entry's matrices as they lie.
bool has_matrices(const ArrayView& view) {
  return is_lt_matrix(view.shape[2], view.shape[3], view.strides[2], view.strides[3]);
}

/// An operand in the scores' dtype, of which products take each entry: itself, or a contiguous
/// copy.
class Wide {
 public:
  Wide(const ArrayView& given, StreamRef stream)
      : given_(given),
        copied_(given.dtype != score_dtype(given.dtype) || !has_matrices(given)),
        scratch_(copied_ ? bytes_of(given.shape, score_dtype(given.dtype)) : 0, stream),
        view_(given) {
    if (copied_)
      view_ = {scratch_.data(), score_dtype(given.dtype), given.shape,
               contiguous_strides(given.shape)};
  }
  /// Brings the operand's values in.
  const Wide& loaded(StreamRef stream) const {
    if (copied_) elementwise::copy({.out = view_, .in = given_}, stream);
    return *this;
  }
  /// Brings the results back.
  void store(StreamRef stream) const {
    if (copied_) elementwise::copy({.out = given_, .in = view_}, stream);
  }
  /// Batch entry n: [heads, rows, columns].
  ArrayView entry(std::int64_t n) const {
    return {view_.as<std::byte>() + n * view_.strides[0] * item(),
            view_.dtype,
            {view_.shape[1], view_.shape[2], view_.shape[3]},
            {view_.strides[1], view_.strides[2], view_.strides[3]}};
  }

 private:
  std::int64_t item() const { return static_cast<std::int64_t>(size_of(view_.dtype)); }

  ArrayView given_;
  bool copied_;
  Scratch scratch_;
  ArrayView view_;
};

/// `count` heads from `first` on.
ArrayView heads(ArrayView view, std::int64_t first, std::int64_t count) {
  const auto item = static_cast<std::int64_t>(size_of(view.dtype));
  view.data = view.as<std::byte>() + first * view.strides[0] * item;
  view.shape[0] = count;
  return view;
}

/// One head, repeated.
ArrayView repeated(const ArrayView& view, std::int64_t head, std::int64_t count) {
  ArrayView one = heads(view, head, 1);
  one.shape[0] = count;
  one.strides[0] = 0;
  return one;
}

ArrayView transposed(ArrayView view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

void multiply(const ArrayView& out, const ArrayView& a, const ArrayView& b, double beta,
              StreamRef stream) {
  gemm::multiply({.out = out, .a = a, .b = b, .beta = beta}, stream);
}

/// out[h] = a[h] b[h's group], for every head.
void multiply_shared(const ArrayView& out, const ArrayView& a, const ArrayView& b,
                     StreamRef stream) {
  const std::int64_t groups = b.shape[0];
  const std::int64_t each = out.shape[0] / groups;
  if (each == 1) return multiply(out, a, b, 0.0, stream);
  for (std::int64_t g = 0; g < groups; ++g)
    multiply(heads(out, g * each, each), heads(a, g * each, each), repeated(b, g, each), 0.0,
             stream);
}

/// out[g] = sum over the heads of group g of a[h] b[h].
void multiply_summed(const ArrayView& out, const ArrayView& a, const ArrayView& b,
                     StreamRef stream) {
  const std::int64_t groups = out.shape[0];
  const std::int64_t each = a.shape[0] / groups;
  if (each == 1) return multiply(out, a, b, 0.0, stream);
  for (std::int64_t h = 0; h < a.shape[0]; ++h)
    multiply(heads(out, h / each, 1), heads(a, h, 1), heads(b, h, 1), h % each ? 1.0 : 0.0, stream);
}

/// The scores of one batch entry and their way to probabilities.
class EntryScores {
 public:
  EntryScores(const backend::cudnn::AttentionArrays& arrays, StreamRef stream)
      : arrays_(arrays),
        shape_{arrays.q.shape[1], arrays.q.shape[2], arrays.k.shape[2]},
        dtype_(score_dtype(arrays.q.dtype)),
        scratch_(bytes_of(shape_, dtype_), stream) {}

  ArrayView view() const { return {scratch_.data(), dtype_, shape_, contiguous_strides(shape_)}; }

  /// Probabilities of entry n from its queries and keys.
  void compute(std::int64_t n, const Wide& q, const Wide& k, const AttentionOptions& options,
               bool given_lse, StreamRef stream) const {
    multiply_shared(view(), q.entry(n), transposed(k.entry(n)), stream);
    const auto item = static_cast<std::int64_t>(size_of(dtype_));
    ArrayView lse{arrays_.lse.as<std::byte>() + n * shape_[0] * shape_[1] * item,
                  dtype_,
                  {shape_[0], shape_[1]},
                  {shape_[1], 1}};
    attention_probabilities({.scores = view(),
                             .lse = lse,
                             .mask = mask(n),
                             .scale = options.scale,
                             .causal = options.causal,
                             .given_lse = given_lse},
                            stream);
  }

 private:
  ArrayView mask(std::int64_t n) const {
    const ArrayView& all = arrays_.mask;
    if (!all) return {};
    const auto item = static_cast<std::int64_t>(size_of(all.dtype));
    return {all.as<std::byte>() + n * all.strides[0] * item,
            all.dtype,
            shape_,
            {all.strides[1], all.strides[2], all.strides[3]}};
  }

  const backend::cudnn::AttentionArrays& arrays_;
  Shape shape_;
  DType dtype_;
  Scratch scratch_;
};

}  // namespace

void composed_attention(const backend::cudnn::AttentionArrays& arrays,
                        const AttentionOptions& options, StreamRef stream) {
  const Wide q(arrays.q, stream), k(arrays.k, stream), v(arrays.v, stream), out(arrays.out, stream);
  for (const Wide* operand : {&q, &k, &v}) operand->loaded(stream);
  const EntryScores scores(arrays, stream);
  for (std::int64_t n = 0; n < arrays.q.shape[0]; ++n) {
    scores.compute(n, q, k, options, false, stream);
    multiply_shared(out.entry(n), scores.view(), v.entry(n), stream);
  }
  out.store(stream);
}

void composed_attention_backward(const backend::cudnn::AttentionArrays& arrays,
                                 const AttentionOptions& options, StreamRef stream) {
  const Wide q(arrays.q, stream), k(arrays.k, stream), v(arrays.v, stream),
      dout(arrays.dout, stream);
  const Wide dq(arrays.dq, stream), dk(arrays.dk, stream), dv(arrays.dv, stream);
  for (const Wide* operand : {&q, &k, &v, &dout}) operand->loaded(stream);
  const EntryScores scores(arrays, stream), gradients(arrays, stream);
  for (std::int64_t n = 0; n < arrays.q.shape[0]; ++n) {
    scores.compute(n, q, k, options, true, stream);
    multiply_summed(dv.entry(n), transposed(scores.view()), dout.entry(n), stream);
    multiply_shared(gradients.view(), dout.entry(n), transposed(v.entry(n)), stream);
    attention_score_gradient(gradients.view(), scores.view(), options.scale, stream);
    multiply_shared(dq.entry(n), gradients.view(), k.entry(n), stream);
    multiply_summed(dk.entry(n), transposed(gradients.view()), q.entry(n), stream);
  }
  for (const Wide* result : {&dq, &dk, &dv}) result->store(stream);
}

}  // namespace lockstep::cuda_kernels
