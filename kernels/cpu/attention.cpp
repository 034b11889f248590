#include "arguments/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/typed_row.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

using kernels::AttentionArguments;
using kernels::AttentionBackwardArguments;
using kernels::AttentionOptions;

/// The rows of one head of one batch entry, [rows, columns] in the accumulation type.
template <class Sum>
struct Head {
  std::int64_t rows, columns;
  std::vector<Sum> values;

  Head(std::int64_t r, std::int64_t c)
      : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  Head(const ArrayView& view, std::int64_t n, std::int64_t h) : Head(view.shape[2], view.shape[3]) {
    for (std::int64_t t = 0; t < rows; ++t) load_row(row(t), view, at(view, n, h, t), 1, columns);
  }
  Sum* row(std::int64_t t) { return values.data() + t * columns; }
  void store(const ArrayView& view, std::int64_t n, std::int64_t h) {
    for (std::int64_t t = 0; t < rows; ++t) store_row(view, at(view, n, h, t), 1, row(t), columns);
  }

 private:
  static std::int64_t at(const ArrayView& view, std::int64_t n, std::int64_t h, std::int64_t t) {
    return n * view.strides[0] + h * view.strides[1] + t * view.strides[2];
  }
};

template <class Sum>
Sum dot(const Sum* a, const Sum* b, std::int64_t count) {
  Sum sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

template <class Sum>
void add_scaled(Sum* to, Sum factor, const Sum* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

/// Scores of one query against all keys, minus infinity where it may not look.
template <class Sum>
void score_row(Sum* scores, const Sum* query, Head<Sum>& keys, const ArrayView& mask,
               const AttentionOptions& options, std::int64_t n, std::int64_t h, std::int64_t t) {
  constexpr Sum hidden = -std::numeric_limits<Sum>::infinity();
  const auto& strides = mask.strides;
  const std::int64_t mask_at =
      mask ? n * strides[0] + h * strides[1] + t * strides[2] : std::int64_t{0};
  for (std::int64_t s = 0; s < keys.rows; ++s) {
    scores[s] = hidden;
    if (options.causal && s > t) continue;
    Sum added = 0;
    if (mask && mask.dtype == DType::boolean) {
      if (!mask.as<const bool>()[mask_at + s * strides[3]]) continue;
    } else if (mask) {
      load_row(&added, mask, mask_at + s * strides[3], 1, 1);
    }
    scores[s] = static_cast<Sum>(options.scale) * dot(query, keys.row(s), keys.columns) + added;
  }
}

/// Log of the sum of exponentials; minus infinity where all scores are.
template <class Sum>
Sum log_sum_exp(const std::vector<Sum>& scores) {
  const Sum largest = scores.empty() ? -std::numeric_limits<Sum>::infinity()
                                     : *std::max_element(scores.begin(), scores.end());
  if (std::isinf(largest) && largest < 0) return largest;
  Sum sum = 0;
  for (const Sum score : scores) sum += std::exp(score - largest);
  return largest + std::log(sum);
}

/// Turns scores into probabilities; a query that sees nothing gives zeros.
template <class Sum>
void to_probabilities(std::vector<Sum>& scores, Sum lse) {
  const bool blind = std::isinf(lse) && lse < 0;
  for (Sum& score : scores) score = blind ? Sum(0) : std::exp(score - lse);
}

void check(const ArrayView& q, const ArrayView& k, const ArrayView& v, const ArrayView& out) {
  LOCKSTEP_CHECK(q.rank() == 4 && k.rank() == 4 && v.rank() == 4 && out.rank() == 4,
                 InvalidArgument, "attention: operands must have 4 dimensions");
  const bool fit = k.shape[0] == q.shape[0] && v.shape[0] == q.shape[0] && k.shape[1] > 0 &&
                   k.shape[1] == v.shape[1] && q.shape[1] % k.shape[1] == 0 &&
                   k.shape[2] == v.shape[2] && k.shape[3] == q.shape[3];
  LOCKSTEP_CHECK(fit, InvalidArgument, "attention: q ", q.shape, ", k ", k.shape, " and v ",
                 v.shape, " do not fit [N, H, T, D], [N, G, S, D], [N, G, S, V]");
  const Shape expected{q.shape[0], q.shape[1], q.shape[2], v.shape[3]};
  LOCKSTEP_CHECK(out.shape == expected, InvalidArgument, "attention: out has shape ", out.shape,
                 ", expected ", expected);
}

template <class T>
void forward_head(const AttentionArguments& a, std::int64_t n, std::int64_t h) {
  using Sum = AccumulateType<T>;
  const std::int64_t group = h / (a.q.shape[1] / a.k.shape[1]);
  Head<Sum> queries(a.q, n, h), keys(a.k, n, group), values(a.v, n, group);
  Head<Sum> result(queries.rows, values.columns);
  std::vector<Sum> scores(static_cast<std::size_t>(keys.rows));
  for (std::int64_t t = 0; t < queries.rows; ++t) {
    score_row(scores.data(), queries.row(t), keys, a.mask, a.options, n, h, t);
    const Sum total = log_sum_exp(scores);
    to_probabilities(scores, total);
    for (std::int64_t s = 0; s < keys.rows; ++s)
      if (scores[static_cast<std::size_t>(s)] != 0)
        add_scaled(result.row(t), scores[static_cast<std::size_t>(s)], values.row(s),
                   values.columns);
    a.lse.as<Sum>()[(n * a.q.shape[1] + h) * a.q.shape[2] + t] = total;
  }
  result.store(a.out, n, h);
}

/// Adds the gradients of one query head; keys and values are shared by the heads of a group.
template <class T, class Sum>
void backward_head(const AttentionBackwardArguments& a, std::int64_t n, std::int64_t h,
                   Head<Sum>& keys, Head<Sum>& values, Head<Sum>& dkeys, Head<Sum>& dvalues) {
  const ArrayView& q = a.q;
  Head<Sum> queries(q, n, h), result(a.out, n, h), dresult(a.dout, n, h);
  Head<Sum> dqueries(queries.rows, queries.columns);
  std::vector<Sum> scores(static_cast<std::size_t>(keys.rows));
  const auto scale = static_cast<Sum>(a.options.scale);
  for (std::int64_t t = 0; t < queries.rows; ++t) {
    score_row(scores.data(), queries.row(t), keys, a.mask, a.options, n, h, t);
    const Sum total = a.lse.as<const Sum>()[(n * q.shape[1] + h) * q.shape[2] + t];
    to_probabilities(scores, total);
    const Sum mean = dot(dresult.row(t), result.row(t), values.columns);
    for (std::int64_t s = 0; s < keys.rows; ++s) {
      const Sum p = scores[static_cast<std::size_t>(s)];
      if (p == 0) continue;
      const Sum dscore = scale * p * (dot(dresult.row(t), values.row(s), values.columns) - mean);
      add_scaled(dvalues.row(s), p, dresult.row(t), values.columns);
      add_scaled(dqueries.row(t), dscore, keys.row(s), keys.columns);
      add_scaled(dkeys.row(s), dscore, queries.row(t), keys.columns);
    }
  }
  dqueries.store(a.dq, n, h);
}

template <class T>
void backward_group(const AttentionBackwardArguments& a, std::int64_t n, std::int64_t g) {
  using Sum = AccumulateType<T>;
  Head<Sum> keys(a.k, n, g), values(a.v, n, g);
  Head<Sum> dkeys(keys.rows, keys.columns), dvalues(values.rows, values.columns);
  const std::int64_t heads = a.q.shape[1] / a.k.shape[1];
  for (std::int64_t h = g * heads; h < (g + 1) * heads; ++h)
    backward_head<T>(a, n, h, keys, values, dkeys, dvalues);
  dkeys.store(a.dk, n, g);
  dvalues.store(a.dv, n, g);
}

}  // namespace

// One query at a time over all keys. Each (batch entry, head) is one thread's work.
void attention::forward(const AttentionArguments& a, StreamRef) {
  check(a.q, a.k, a.v, a.out);
  const std::int64_t heads = a.q.shape[1];
  dispatch_floating(a.q.dtype, "attention", [&](auto tag) {
    parallel_for(a.q.shape[0] * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        forward_head<typename decltype(tag)::type>(a, i / heads, i % heads);
    });
  });
}

void attention::backward(const AttentionBackwardArguments& a, StreamRef) {
  check(a.q, a.k, a.v, a.out);
  const std::int64_t groups = a.k.shape[1];
  dispatch_floating(a.q.dtype, "attention backward", [&](auto tag) {
    parallel_for(a.q.shape[0] * groups, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        backward_group<typename decltype(tag)::type>(a, i / groups, i % groups);
    });
  });
}

}  // namespace lockstep::cpu_kernels
