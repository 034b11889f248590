#include "lockstep/autograd/ops/attention.hpp"

#include "lockstep/autograd/ops/shape.hpp"
#include "support/random_cases.hpp"

namespace lockstep::testing {
namespace {

/// Attention of one query head over all its keys, and its gradients, by loops.
struct Attention {
  std::int64_t heads, groups, queries, keys, depth, width;
  double scale;
  bool causal;
  const Values &q, &k, &v, &mask, &dout;  ///< mask: added to the scores, [T, S], or empty
  Expected out, dq, dk, dv;

  static double at(const Values& values, std::int64_t i) {
    return values[static_cast<std::size_t>(i)];
  }

  void run(std::int64_t images) {
    out = Expected(images * heads * queries * width);
    dq = Expected(images * heads * queries * depth);
    dk = Expected(images * groups * keys * depth);
    dv = Expected(images * groups * keys * width);
    for (std::int64_t i = 0; i < images * heads; ++i)
      for (std::int64_t t = 0; t < queries; ++t)
        run_query(i, i / heads * groups + i % heads / (heads / groups), t);
  }

  /// @param head, group which of all heads and groups of the batch. @param t the query.
  void run_query(std::int64_t head, std::int64_t group, std::int64_t t) {
    const std::int64_t seen = causal ? std::min(keys, t + 1) : keys, row = head * queries + t;
    Values p(static_cast<std::size_t>(seen)), dp(p.size());
    double largest = -INFINITY, sum = 0, mean = 0, size = 0;  // size: of the terms of any slope
    for (std::int64_t s = 0; s < seen; ++s) {
      double score = mask.empty() ? 0 : at(mask, t * keys + s);
      for (std::int64_t d = 0; d < depth; ++d)
        score += scale * at(q, row * depth + d) * at(k, (group * keys + s) * depth + d);
      largest = std::max(largest, p[static_cast<std::size_t>(s)] = score);
    }
    for (double& each : p) sum += each = std::exp(each - largest);
    for (std::int64_t s = 0; s < seen; ++s) {
      const double share = p[static_cast<std::size_t>(s)] /= sum;
      double& slope = dp[static_cast<std::size_t>(s)];
      for (std::int64_t w = 0; w < width; ++w) {
        const std::int64_t iv = (group * keys + s) * width + w;
        out.add(row * width + w, share * at(v, iv));
        dv.add(iv, share * at(dout, row * width + w));
        slope += at(dout, row * width + w) * at(v, iv);
        size += std::abs(at(dout, row * width + w) * at(v, iv));
      }
      mean += share * slope;
    }
    for (std::int64_t s = 0; s < seen; ++s)
      for (std::int64_t d = 0; d < depth; ++d) {
        const double share = scale * p[static_cast<std::size_t>(s)];
        const double slope = share * (dp[static_cast<std::size_t>(s)] - mean);
        const std::int64_t iq = row * depth + d, ik = (group * keys + s) * depth + d;
        dq.add(iq, slope * at(k, ik));
        dk.add(ik, slope * at(q, iq));
        // Slopes are differences, which rounding errors of their terms outlive.
        dq.magnitudes[static_cast<std::size_t>(iq)] += share * size * std::abs(at(k, ik));
        dk.magnitudes[static_cast<std::size_t>(ik)] += share * size * std::abs(at(q, iq));
      }
  }
};

/// Rounding errors of the scores and of the sums over `width` reach every gradient: all are
/// measured against the largest magnitude.
Expected against_largest(Expected expected) {
  double largest = 1e-3;
  for (const double each : expected.magnitudes) largest = std::max(largest, each);
  for (double& each : expected.magnitudes) each = largest;
  return expected;
}

class RandomAttention : public RandomCases {
 protected:
  /// By queries, keys and values side by side.
  static Tensor packed(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& options) {
    const std::int64_t heads = q.size(1), time = q.size(2);
    const auto rows = [&](const Tensor& x) {
      return x.transpose(1, 2).reshape({x.size(0), time, -1});
    };
    const Tensor y = self_attention(cat({rows(q), rows(k), rows(v)}, 2), heads, options);
    return y.reshape({q.size(0), time, heads, -1}).transpose(1, 2);
  }
  static ::testing::AssertionResult check_case(RandomCase& c) {
    const std::int64_t images = c.integer(1, 2), groups = c.integer(1, 3);
    const std::int64_t heads = groups * c.integer(1, 3);
    const std::int64_t queries = c.extent(c.chance(0.2) ? 140 : 20, false);
    const std::int64_t keys = c.chance(0.5) ? queries : c.extent(40, false);
    const std::int64_t depth = c.extent(24, false),
                       width = c.chance(0.5) ? depth : c.extent(24, false);
    const Shape q_shape{images, heads, queries, depth}, k_shape{images, groups, keys, depth};
    const Shape v_shape{images, groups, keys, width}, shape{images, heads, queries, width};
    const RandomTensor q = c.tensor(q_shape), k = c.tensor(k_shape), v = c.tensor(v_shape);
    const RandomTensor dout = c.tensor(shape), mask = c.tensor({queries, keys});
    const bool masked = c.chance(0.3), causal = c.chance(0.5);
    c.note(masked ? "masked " : "", causal ? "causal" : "");
    const Values none;
    Attention expected{.heads = heads,
                       .groups = groups,
                       .queries = queries,
                       .keys = keys,
                       .depth = depth,
                       .width = width,
                       .scale = 1 / std::sqrt(static_cast<double>(depth)),
                       .causal = causal,
                       .q = q.values,
                       .k = k.values,
                       .v = v.values,
                       .mask = masked ? mask.values : none,
                       .dout = dout.values,
                       .out = {},
                       .dq = {},
                       .dk = {},
                       .dv = {}};
    expected.run(images);
    const Tensor x = leaf(q), y = leaf(k), z = leaf(v);
    AttentionOptions options{.mask = masked ? mask.tensor : Tensor(), .is_causal = causal};
    if (c.chance(0.3) && size_of(c.setting().dtype) >= 4) {  // by its scores, which are rounded
      options.dropout = 1e-300;
      c.note("by scores");
    }
    const bool packs = groups == heads && keys == queries && width == depth;
    const Tensor out =
        packs ? packed(x, y, z, options) : scaled_dot_product_attention(x, y, z, options);
    const DType dtype = c.setting().dtype;
    const auto tolerance = [&](std::int64_t terms) {
      return 2 * sum_tolerance(dtype, static_cast<double>(terms + depth + width));
    };
    if (auto r = agrees(out, shape, against_largest(expected.out), tolerance(keys)); !r)
      return r << ": the output";
    out.backward(dout);
    if (auto r = agrees(x.grad(), q_shape, against_largest(expected.dq), tolerance(keys)); !r)
      return r << ": the gradient of q";
    const std::int64_t rows = queries * heads / groups;
    if (auto r = agrees(y.grad(), k_shape, against_largest(expected.dk), tolerance(rows)); !r)
      return r << ": the gradient of k";
    if (auto r = agrees(z.grad(), v_shape, against_largest(expected.dv), tolerance(rows)); !r)
      return r << ": the gradient of v";
    return ::testing::AssertionSuccess();
  }
};

TEST_P(RandomAttention, AgreesWithLoops) { run_cases(60, check_case); }
TEST_P(RandomAttention, SlowAgreesWithLoops) { run_cases(20000, check_case); }

class RandomRotary : public RandomCases {
 protected:
  static ::testing::AssertionResult check_case(RandomCase& c) {
    const Shape shape{c.integer(1, 3), c.extent(9), c.extent(12), 2 * c.extent(24, false)};
    const DType dtype = c.setting().dtype;
    const DType table = dtype == DType::f64 ? DType::f64 : c.choose({DType::f32, dtype});
    const Shape angles = c.chance(0.3)
                             ? Shape{shape[2], shape[3] / 2}
                             : Shape{c.chance(0.5) ? 1 : shape[0], 1, shape[2], shape[3] / 2};
    const RandomTensor x = c.tensor(shape), dy = c.tensor(shape);
    const RandomTensor cos = c.tensor(angles, table), sin = c.tensor(angles, table);
    c.note("angles ", angles, " ", table);
    const std::int64_t half = shape[3] / 2, per_image = shape[2] * half;
    const std::int64_t images = numel(angles) / std::max<std::int64_t>(1, per_image);
    Expected y(numel(shape)), dx(numel(shape));
    for (std::int64_t at = 0; at < numel(shape); at += shape[3]) {
      const std::int64_t row = at / shape[3], n = row / shape[2] / shape[1];
      for (std::int64_t i = 0; i < half; ++i) {
        const std::int64_t first = at + i, second = first + half;
        const std::int64_t angle = (images == 1 ? 0 : n * per_image) + row % shape[2] * half + i;
        const auto value = [](const RandomTensor& from, std::int64_t place) {
          return from.values[static_cast<std::size_t>(place)];
        };
        const double co = value(cos, angle), si = value(sin, angle);
        y.add(first, value(x, first) * co), y.add(first, -value(x, second) * si);
        y.add(second, value(x, second) * co), y.add(second, value(x, first) * si);
        dx.add(first, value(dy, first) * co), dx.add(first, value(dy, second) * si);
        dx.add(second, value(dy, second) * co), dx.add(second, -value(dy, first) * si);
      }
    }
    const Tensor input = leaf(x), output = rotary_embedding(input, cos, sin);
    const double tolerance = sum_tolerance(dtype, 2);
    if (auto r = agrees(output, shape, y, tolerance); !r) return r;
    output.backward(dy);
    if (auto r = agrees(input.grad(), shape, dx, tolerance); !r) return r << ": the gradient";
    Tensor changed = x.tensor.clone();
    return agrees(rotary_embedding_(changed, cos, sin), shape, y, tolerance) << ": in place";
  }
};

TEST_P(RandomRotary, AgreesWithLoops) { run_cases(60, check_case); }
TEST_P(RandomRotary, SlowAgreesWithLoops) { run_cases(20000, check_case); }

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomRotary,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomAttention,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
