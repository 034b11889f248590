#include "arguments/softmax.hpp"

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

class SoftmaxContract : public ContractTest {
 protected:
  static constexpr std::int64_t rows = 13, columns = 101;

  static std::size_t at(std::int64_t row, std::int64_t column) {
    return static_cast<std::size_t>(row * columns + column);
  }
  /// The log-sum-exp of a row.
  static double lse(const Values& x, std::int64_t row) {
    double top = -INFINITY, sum = 0;
    for (int c = 0; c < columns; ++c) top = std::max(top, x[at(row, c)]);
    for (int c = 0; c < columns; ++c) sum += std::exp(x[at(row, c)] - top);
    return top + std::log(sum);
  }
  const kernels::SoftmaxKernels& family() { return backend().softmax; }
};

TEST_P(SoftmaxContract, MatchesFormulas) {
  const auto x = array({rows, columns}).randomize(1, -40, 40), y = array({rows, columns});
  const auto dy = array({rows, columns}).randomize(2), dx = array({rows, columns});
  for (const bool log : {false, true}) {
    family().forward({.y = y, .x = x, .log = log}, stream());
    const Values in = x.get();
    Values expected(in.size());
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c) {
        const double value = in[at(r, c)] - lse(in, r);
        expected[at(r, c)] = log ? value : std::exp(value);
      }
    EXPECT_TRUE(close(y.get(), expected, tolerance(4)));

    family().backward({.dx = dx, .dy = dy, .y = y, .log = log}, stream());
    const Values g = dy.get(), out = y.get();
    for (int r = 0; r < rows; ++r) {
      double total = 0;
      for (int c = 0; c < columns; ++c) total += log ? g[at(r, c)] : g[at(r, c)] * out[at(r, c)];
      for (int c = 0; c < columns; ++c)
        expected[at(r, c)] = log ? g[at(r, c)] - std::exp(out[at(r, c)]) * total
                                 : out[at(r, c)] * (g[at(r, c)] - total);
    }
    EXPECT_TRUE(close(dx.get(), expected, tolerance(8)));
  }
}

TEST_P(SoftmaxContract, TakesMaskedAndNarrowRows) {
  const auto x = array({2, 3}).set({-INFINITY, 0, -INFINITY, 1000, 1000, -INFINITY});
  const auto y = array({2, 3});
  family().forward({.y = y, .x = x}, stream());
  EXPECT_TRUE(close(y.get(), {0, 1, 0, 0.5, 0.5, 0}, tolerance()));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, SoftmaxContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
