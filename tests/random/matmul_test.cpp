#include "lockstep/autograd/ops/matmul.hpp"

#include "support/random_cases.hpp"

namespace lockstep::testing {
namespace {

/// The batch dimensions of an operand, or of both together.
Shape leading(const Shape& shape) {
  Shape result = shape;
  for (int i = 0; i < 2 && result.size() > 0; ++i) result.erase(result.size() - 1);
  return result;
}

/// Which matrix of an operand with batch dimensions `own` meets matrix `index` of `batch`.
std::int64_t matrix_of(std::int64_t index, const Shape& batch, const Shape& own) {
  std::int64_t result = 0, step = 1;
  for (int d = batch.size() - 1, o = own.size() - 1; d >= 0; --d, --o) {
    const std::int64_t at = index % batch[d];
    index /= batch[d];
    if (o < 0) continue;
    if (own[o] != 1) result += at * step;
    step *= own[o];
  }
  return result;
}

/// A product and its gradients by loops.
struct Product {
  Expected out, da, db;

  Product(const Values& a, const Shape& a_shape, const Values& b, const Shape& b_shape,
          const Values& dy, const Shape& batch, std::int64_t m, std::int64_t k, std::int64_t n)
      : out(numel(batch) * m * n),
        da(static_cast<std::int64_t>(a.size())),
        db(static_cast<std::int64_t>(b.size())) {
    const auto at = [](const Values& values, std::int64_t i) {
      return values[static_cast<std::size_t>(i)];
    };
    for (std::int64_t each = 0; each < numel(batch); ++each) {
      const std::int64_t in_a = matrix_of(each, batch, leading(a_shape)) * m * k;
      const std::int64_t in_b = matrix_of(each, batch, leading(b_shape)) * k * n;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          for (std::int64_t p = 0; p < k; ++p) {
            const std::int64_t ia = in_a + i * k + p, ib = in_b + p * n + j;
            const std::int64_t io = (each * m + i) * n + j;
            out.add(io, at(a, ia) * at(b, ib));
            da.add(ia, at(dy, io) * at(b, ib));
            db.add(ib, at(dy, io) * at(a, ia));
          }
    }
  }
};

class RandomMatmul : public RandomCases {
 protected:
  void check(std::int64_t cases, std::int64_t high) {
    run_cases(cases, [&](RandomCase& c) { return check_case(c, high); });
  }

  static ::testing::AssertionResult check_case(RandomCase& c, std::int64_t high) {
    const std::int64_t m = c.extent(high), k = c.extent(high), n = c.extent(high);
    const Shape batch = c.shape(static_cast<int>(c.integer(0, 3)), 4, 6);
    Shape a_shape = c.broadcastable(batch), b_shape = c.broadcastable(batch);
    a_shape.push_back(m), a_shape.push_back(k), b_shape.push_back(k), b_shape.push_back(n);
    const RandomTensor a = c.tensor(a_shape), b = c.tensor(b_shape);
    const Tensor x = leaf(a), y = leaf(b);
    const Tensor out = matmul(x, y);
    Shape joined = broadcast_shapes(leading(a_shape), leading(b_shape));
    Shape shape = joined;
    shape.push_back(m), shape.push_back(n);
    const RandomTensor dy = c.tensor(shape);
    const Product expected(a.values, a_shape, b.values, b_shape, dy.values, joined, m, k, n);
    const auto tolerance = [&](std::int64_t terms) {
      return sum_tolerance(c.setting().dtype, static_cast<double>(terms));
    };
    if (auto r = agrees(out, shape, expected.out, tolerance(k)); !r) return r << ": the product";
    out.backward(dy);
    const std::int64_t count = numel(joined);
    if (auto r = agrees(x.grad(), a_shape, expected.da, tolerance(n * count)); !r)
      return r << ": the left gradient";
    if (auto r = agrees(y.grad(), b_shape, expected.db, tolerance(m * count)); !r)
      return r << ": the right gradient";
    return ::testing::AssertionSuccess();
  }
};

TEST_P(RandomMatmul, AgreesWithLoops) {
  check(200, 40);
  check(20, 200);
}
TEST_P(RandomMatmul, SlowAgreesWithLoops) {
  check(40000, 40);
  check(2000, 300);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomMatmul,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
