#include "arguments/attention.hpp"

#include <cmath>

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

enum class Mask { none, boolean, additive };

struct AttentionCase {
  std::int64_t n, heads, groups, queries, keys, depth, width;
  bool causal = false;
  Mask mask = Mask::none;
  bool interleaved = false;  ///< memory order [N, T, H, D], as a fused projection leaves it
};

/// Attention and its gradients in doubles.
struct NaiveAttention {
  const AttentionCase& c;
  Values q, k, v, mask, dout;  // mask: what is added to each score, minus infinity to hide
  Values out, lse, dq, dk, dv;

  double scale() const { return 0.3; }
  std::size_t row(std::int64_t n, std::int64_t h, std::int64_t heads, std::int64_t t,
                  std::int64_t rows, std::int64_t columns) const {
    return static_cast<std::size_t>(((n * heads + h) * rows + t) * columns);
  }
  void run() {
    out.assign(dout.size(), 0);
    lse.assign(static_cast<std::size_t>(c.n * c.heads * c.queries), 0);
    dq.assign(q.size(), 0), dk.assign(k.size(), 0), dv.assign(v.size(), 0);
    for (std::int64_t n = 0; n < c.n; ++n)
      for (std::int64_t h = 0; h < c.heads; ++h)
        for (std::int64_t t = 0; t < c.queries; ++t) query(n, h, t);
  }
  void query(std::int64_t n, std::int64_t h, std::int64_t t) {
    const auto g = h / (c.heads / c.groups);
    const double* pq = &q[row(n, h, c.heads, t, c.queries, c.depth)];
    Values p(static_cast<std::size_t>(c.keys));
    double sum = 0;
    for (std::int64_t s = 0; s < c.keys; ++s) {
      const double* pk = &k[row(n, g, c.groups, s, c.keys, c.depth)];
      double score = mask[row(n, h, c.heads, t, c.queries, c.keys) + static_cast<std::size_t>(s)];
      if (c.causal && s > t) score = -INFINITY;
      for (std::int64_t d = 0; d < c.depth; ++d) score += scale() * pq[d] * pk[d];
      sum += p[static_cast<std::size_t>(s)] = std::exp(score);
    }
    lse[row(n, h, c.heads, t, c.queries, 1)] = std::log(sum);
    if (sum == 0) return;
    gradients(p, sum, n, h, g, t);
  }
  void gradients(const Values& p, double sum, std::int64_t n, std::int64_t h, std::int64_t g,
                 std::int64_t t) {
    const auto at_q = row(n, h, c.heads, t, c.queries, c.depth);
    const auto at_out = row(n, h, c.heads, t, c.queries, c.width);
    Values dp(p.size());
    double mean = 0;
    for (std::size_t s = 0; s < p.size(); ++s) {
      const auto at_v = row(n, g, c.groups, static_cast<std::int64_t>(s), c.keys, c.width);
      for (std::size_t d = 0; d < static_cast<std::size_t>(c.width); ++d) {
        out[at_out + d] += p[s] / sum * v[at_v + d];
        dp[s] += dout[at_out + d] * v[at_v + d];
        dv[at_v + d] += p[s] / sum * dout[at_out + d];
      }
      mean += p[s] / sum * dp[s];
    }
    for (std::size_t s = 0; s < p.size(); ++s) {
      const auto at_k = row(n, g, c.groups, static_cast<std::int64_t>(s), c.keys, c.depth);
      const double ds = p[s] / sum * (dp[s] - mean) * scale();
      for (std::size_t d = 0; d < static_cast<std::size_t>(c.depth); ++d) {
        dq[at_q + d] += ds * k[at_k + d];
        dk[at_k + d] += ds * q[at_q + d];
      }
    }
  }
};

class AttentionContract : public ContractTest {
 protected:
  DeviceArray heads(std::int64_t n, std::int64_t h, std::int64_t t, std::int64_t d,
                    const AttentionCase& c) const {
    const Shape shape{n, h, t, d};
    return array(shape,
                 c.interleaved ? Strides{t * h * d, d, h * d, 1} : contiguous_strides(shape));
  }

  void check(const AttentionCase& c) {
    SCOPED_TRACE(::testing::Message() << "T " << c.queries << " S " << c.keys << " causal "
                                      << c.causal << " mask " << static_cast<int>(c.mask));
    auto q = heads(c.n, c.heads, c.queries, c.depth, c).randomize(1, -2, 2);
    auto k = heads(c.n, c.groups, c.keys, c.depth, c).randomize(2, -2, 2);
    auto v = heads(c.n, c.groups, c.keys, c.width, c).randomize(3);
    auto out = heads(c.n, c.heads, c.queries, c.width, c);
    auto dout = heads(c.n, c.heads, c.queries, c.width, c).randomize(4);
    auto dq = heads(c.n, c.heads, c.queries, c.depth, c).randomize(5);
    auto dk = heads(c.n, c.groups, c.keys, c.depth, c).randomize(6);
    auto dv = heads(c.n, c.groups, c.keys, c.width, c).randomize(7);
    auto lse = array(statistics_dtype(), {c.n, c.heads, c.queries});
    // One mask for all batch entries and heads, repeated by strides.
    auto mask = array(c.mask == Mask::boolean ? DType::boolean : dtype(), {c.queries, c.keys});
    ArrayView mask_view = mask;
    mask_view.shape = {c.n, c.heads, c.queries, c.keys};
    mask_view.strides = {0, 0, c.keys, 1};
    NaiveAttention naive{c, q.get(), k.get(), v.get(), {}, dout.get(), {}, {}, {}, {}, {}};
    naive.mask = set_mask(mask, c);
    naive.run();

    const kernels::AttentionOptions options{.scale = naive.scale(), .causal = c.causal};
    const ArrayView used = c.mask == Mask::none ? ArrayView{} : mask_view;
    family().forward(
        {.out = out, .lse = lse, .q = q, .k = k, .v = v, .mask = used, .options = options},
        stream());
    family().backward({.dq = dq,
                       .dk = dk,
                       .dv = dv,
                       .dout = dout,
                       .q = q,
                       .k = k,
                       .v = v,
                       .out = out,
                       .lse = lse,
                       .mask = used,
                       .options = options},
                      stream());
    const double forward = tolerance(32), backward = 4 * tolerance(64);
    EXPECT_TRUE(close(out.get(), naive.out, forward));
    EXPECT_TRUE(close(lse.get(), naive.lse, forward));
    EXPECT_TRUE(close(dq.get(), naive.dq, backward));
    EXPECT_TRUE(close(dk.get(), naive.dk, backward));
    EXPECT_TRUE(close(dv.get(), naive.dv, backward));
  }

  /// What attention gives for these values.
  Values output(const ArrayView& q, const ArrayView& k, const ArrayView& v) const {
    auto out = array({q.shape[0], q.shape[1], q.shape[2], v.shape[3]});
    auto lse = array(statistics_dtype(), {q.shape[0], q.shape[1], q.shape[2]});
    family().forward(
        {.out = out, .lse = lse, .q = q, .k = k, .v = v, .mask = {}, .options = {.scale = 0.3}},
        stream());
    return out.get();
  }

 private:
  /// Fills the mask (its third row hides every key) and returns what it adds to each score.
  static Values set_mask(DeviceArray& mask, const AttentionCase& c) {
    Values raw = random_values(c.queries * c.keys, 9), one(raw.size());
    if (c.mask == Mask::none) return Values(raw.size() * static_cast<std::size_t>(c.n * c.heads));
    for (std::size_t i = 0; i < raw.size(); ++i) {
      const bool hidden = raw[i] < -0.3 || static_cast<std::int64_t>(i) / c.keys == 2;
      if (c.mask == Mask::boolean)
        raw[i] = !hidden;
      else if (hidden)
        raw[i] = -INFINITY;
      one[i] = hidden ? -INFINITY : 0;
    }
    mask.set(raw);
    if (c.mask == Mask::additive) one = mask.get();
    Values all;
    for (std::int64_t i = 0; i < c.n * c.heads; ++i) all.insert(all.end(), one.begin(), one.end());
    return all;
  }
  const kernels::AttentionKernels& family() const { return backend().attention; }
};

TEST_P(AttentionContract, SeesAllKeys) {
  check({2, 3, 3, 17, 23, 8, 8});
  check({1, 2, 2, 130, 150, 64, 64});
  check({1, 1, 1, 70, 531, 40, 33});
}
TEST_P(AttentionContract, CausalQueriesSeeNoLaterKeys) {
  check({2, 2, 2, 33, 33, 16, 16, true});
  check({1, 2, 2, 200, 200, 32, 32, true});
  check({1, 1, 1, 20, 9, 8, 8, true});
  check({1, 1, 1, 9, 20, 8, 8, true});
}
TEST_P(AttentionContract, MasksHideKeysAndBlindQueriesGiveZero) {
  check({2, 2, 2, 19, 70, 8, 8, false, Mask::boolean});
  check({2, 2, 2, 19, 70, 8, 8, false, Mask::additive});
  check({1, 2, 2, 40, 40, 8, 8, true, Mask::boolean});
  check({1, 2, 2, 40, 40, 8, 8, true, Mask::additive});
}

TEST_P(AttentionContract, MasksReachOverBlocksOfQueries) {
  if (GetParam().device.is_cuda()) GTEST_SKIP() << "blocks of the CPU's";
  check({1, 2, 2, 100, 70, 8, 8, false, Mask::boolean});
  check({1, 2, 2, 100, 70, 8, 8, false, Mask::additive});
}
TEST_P(AttentionContract, QueryHeadsShareKeyHeads) {
  check({2, 6, 2, 21, 35, 8, 8});
  check({2, 4, 1, 70, 70, 16, 16, true});
}
TEST_P(AttentionContract, ValuesMayBeWiderThanKeys) {
  check({1, 2, 2, 11, 13, 5, 9});
  check({1, 2, 1, 65, 66, 24, 7, true});
}
TEST_P(AttentionContract, ReadsInterleavedHeads) {
  check({2, 3, 3, 66, 66, 16, 16, true, Mask::none, true});
}
TEST_P(AttentionContract, ReadsOperandsThatAreExpanded) {
  const auto q = array({2, 2, 9, 8}).randomize(1), k = array({2, 2, 5, 8}).randomize(2);
  const auto row = array({2, 2, 1, 8}).randomize(3);
  auto v = array({2, 2, 5, 8});
  const Values rows = row.get();
  Values repeated;
  for (auto at = rows.begin(); at != rows.end(); at += 8)
    for (int i = 0; i < 5; ++i) repeated.insert(repeated.end(), at, at + 8);
  v.set(repeated);
  ArrayView expanded = row;
  expanded.shape[2] = 5;
  expanded.strides[2] = 0;
  EXPECT_TRUE(close(output(q, k, expanded), output(q, k, v), tolerance(32)));
}
TEST_P(AttentionContract, SingleQueryAndKey) {
  check({1, 1, 1, 1, 1, 4, 4});
  check({1, 2, 2, 1, 77, 4, 4});
}

INSTANTIATE_TEST_SUITE_P(
    Backends, AttentionContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
