#include "lockstep/autograd/ops/matmul.hpp"
#include "support/random_cases.hpp"

namespace lockstep::testing {
namespace {

class RandomLinear : public RandomCases {
 protected:
  static ::testing::AssertionResult check_case(RandomCase& c, std::int64_t high) {
    const std::int64_t in = c.extent(high), out = c.extent(high);
    Shape x_shape = c.shape(static_cast<int>(c.integer(0, 3)), high, 3 * high), shape = x_shape;
    const std::int64_t rows = numel(x_shape);
    x_shape.push_back(in), shape.push_back(out);
    const RandomTensor x = c.tensor(x_shape), w = c.tensor({out, in}), b = c.tensor({out});
    const bool biased = c.chance(0.6);
    c.note(biased ? "bias" : "no bias");
    const Tensor input = leaf(x), weight = leaf(w), bias = biased ? leaf(b) : Tensor();
    const Tensor y = linear(input, weight, bias);
    const RandomTensor dy = c.tensor(shape);
    const auto at = [](const RandomTensor& t, std::int64_t i) {
      return t.values[static_cast<std::size_t>(i)];
    };
    Expected ey(rows * out), ex(rows * in), ew(out * in), eb(out);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t o = 0; o < out; ++o) {
        const double gradient = at(dy, r * out + o);
        if (biased) ey.add(r * out + o, at(b, o));
        eb.add(o, gradient);
        for (std::int64_t i = 0; i < in; ++i) {
          ey.add(r * out + o, at(x, r * in + i) * at(w, o * in + i));
          ex.add(r * in + i, gradient * at(w, o * in + i));
          ew.add(o * in + i, gradient * at(x, r * in + i));
        }
      }
    const auto tolerance = [&](std::int64_t terms) {
      return sum_tolerance(c.setting().dtype, static_cast<double>(terms));
    };
    if (auto r = agrees(y, shape, ey, tolerance(in)); !r) return r << ": the output";
    y.backward(dy);
    if (auto r = agrees(input.grad(), x_shape, ex, tolerance(out)); !r)
      return r << ": the input's gradient";
    if (auto r = agrees(weight.grad(), {out, in}, ew, tolerance(rows)); !r)
      return r << ": the weight's gradient";
    if (biased)
      if (auto r = agrees(bias.grad(), {out}, eb, tolerance(rows)); !r)
        return r << ": the bias's gradient";
    return ::testing::AssertionSuccess();
  }
};

TEST_P(RandomLinear, AgreesWithLoops) {
  run_cases(200, [](RandomCase& c) { return check_case(c, 40); });
  run_cases(20, [](RandomCase& c) { return check_case(c, 200); });
}
TEST_P(RandomLinear, SlowAgreesWithLoops) {
  run_cases(40000, [](RandomCase& c) { return check_case(c, 40); });
  run_cases(2000, [](RandomCase& c) { return check_case(c, 300); });
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomLinear,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
