#include "cuda/attention.hpp"
#include "cuda/log_sum_exp.hpp"

namespace lockstep::cuda_kernels {
namespace {

/// An attention mask of any allowed dtype.
struct Mask {
  const void* data;
  DType dtype;
  std::int64_t strides[3];

  explicit Mask(const ArrayView& view) : data(view.data), dtype(view.dtype), strides{} {
    for (int d = 0; d < 3 && view; ++d) strides[d] = view.strides[d];
  }

  /// What is added to a score: 0 without a mask.
  template <class A>
  __device__ A at(std::int64_t offset) const {
    if (!data) return A(0);
    switch (dtype) {
      case DType::boolean:
        return static_cast<const bool*>(data)[offset] ? A(0) : LogSumExp<A>::lowest;
      case DType::f64: return convert<A>(static_cast<const double*>(data)[offset]);
      case DType::f32: return convert<A>(static_cast<const float*>(data)[offset]);
      case DType::bf16: return convert<A>(static_cast<const BFloat16*>(data)[offset]);
      default: return convert<A>(static_cast<const Half*>(data)[offset]);
    }
  }
};

template <class A>
struct Scores {
  A* scores;
  A* lse;
  std::int64_t queries;
  A scale;
  bool causal, given_lse;
};

template <class Group, class A>
__global__ void __launch_bounds__(row_threads)
    probabilities_kernel(std::int64_t rows, std::int64_t columns, Scores<A> p, Mask mask) {
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    A* const scores = p.scores + row * columns;
    const std::int64_t query = row % p.queries;
    const std::int64_t mask_row = row / p.queries * mask.strides[0] + query * mask.strides[1];
    const auto score = [&](std::int64_t key) {
      if (p.causal && key > query) return LogSumExp<A>::lowest;
      return p.scale * scores[key] + mask.at<A>(mask_row + key * mask.strides[2]);
    };
    A total = 0;
    if (p.given_lse) {
      total = p.lse[row];
    } else {
      LogSumExp<A> state;
      for (std::int64_t key = group.rank(); key < columns; key += group.size())
        if (const A value = score(key); value != LogSumExp<A>::lowest) state.add(value);
      state = group.reduce(state, MergeLogSumExp{});
      total = state.maximum == LogSumExp<A>::lowest ? LogSumExp<A>::lowest : state.value();
      if (group.rank() == 0) p.lse[row] = total;
    }
    const bool blind = total == LogSumExp<A>::lowest;
    for (std::int64_t key = group.rank(); key < columns; key += group.size())
      scores[key] = blind ? A(0) : functional::math::exp(score(key) - total);
  }
}

template <class Group, class A>
__global__ void __launch_bounds__(row_threads)
    score_gradient_kernel(std::int64_t rows, std::int64_t columns, A* gradient, const A* p,
                          A scale) {
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const std::int64_t start = row * columns;
    A sum = 0;
    for (std::int64_t key = start + group.rank(); key < start + columns; key += group.size())
      sum += p[key] * gradient[key];
    sum = group.reduce(sum, Sum{});
    for (std::int64_t key = start + group.rank(); key < start + columns; key += group.size())
      gradient[key] = scale * p[key] * (gradient[key] - sum);
  }
}

/// Scores are kept in f32 or f64 only.
template <class Visitor>
void dispatch_scores(DType dtype, Visitor&& visit) {
  if (dtype == DType::f64) return visit(TypeTag<double>{});
  LOCKSTEP_CHECK(dtype == DType::f32, Unsupported, "attention: scores of dtype ", dtype);
  visit(TypeTag<float>{});
}

}  // namespace

void attention_probabilities(const AttentionScores& arrays, StreamRef stream) {
  const std::int64_t queries = arrays.scores.shape[1];
  const std::int64_t keys = arrays.scores.shape[2];
  dispatch_scores(arrays.scores.dtype, [&]<class A>(TypeTag<A>) {
    const Scores<A> scores{arrays.scores.as<A>(),        arrays.lse.as<A>(), queries,
                           static_cast<A>(arrays.scale), arrays.causal,      arrays.given_lse};
    launch_rows(stream, arrays.scores.shape[0] * queries, keys, probabilities_kernel<WarpGroup, A>,
                probabilities_kernel<BlockGroup, A>, scores, Mask(arrays.mask));
  });
}

void attention_score_gradient(const ArrayView& gradient, const ArrayView& probabilities,
                              double scale, StreamRef stream) {
  const std::int64_t keys = gradient.shape[2];
  dispatch_scores(gradient.dtype, [&]<class A>(TypeTag<A>) {
    launch_rows(stream, gradient.shape[0] * gradient.shape[1], keys,
                score_gradient_kernel<WarpGroup, A>, score_gradient_kernel<BlockGroup, A>,
                gradient.as<A>(), probabilities.as<A>(), static_cast<A>(scale));
  });
}

}  // namespace lockstep::cuda_kernels
