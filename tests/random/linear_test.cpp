#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/tensor/compare.hpp"
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
    const RandomTensor dy = c.tensor(shape), a = c.tensor(shape);
    const Tensor addend = c.chance(0.4) ? leaf(a) : Tensor();
    if (addend.defined()) c.note("addend");
    const Tensor y =
        addend.defined() ? add_linear(addend, input, weight, bias) : linear(input, weight, bias);
    const auto at = [](const RandomTensor& t, std::int64_t i) {
      return t.values[static_cast<std::size_t>(i)];
    };
    Expected ey(rows * out), ex(rows * in), ew(out * in), eb(out);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t o = 0; o < out; ++o) {
        const double gradient = at(dy, r * out + o);
        if (biased) ey.add(r * out + o, at(b, o));
        if (addend.defined()) ey.add(r * out + o, at(a, r * out + o));
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
    if (addend.defined()) {
      Expected ea(rows * out);
      for (std::int64_t i = 0; i < rows * out; ++i) ea.add(i, at(dy, i));
      if (auto r = agrees(addend.grad(), shape, ea, 0); !r) return r << ": the addend's gradient";
    }
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

/// Beside the layers that it is made of, in f64.
class RandomMlp : public RandomCases {
 protected:
  static ::testing::AssertionResult check_case(RandomCase& c) {
    const std::int64_t in = c.extent(20), hidden = c.extent(40), out = c.extent(20);
    Shape shape = c.shape(static_cast<int>(c.integer(0, 3)), 12, 36);
    shape.push_back(in);
    std::vector<RandomTensor> given{c.tensor(shape), c.tensor({hidden, in}), c.tensor({hidden}),
                                    c.tensor({out, hidden}), c.tensor({out})};
    shape.back() = out;
    given.push_back(c.tensor(shape));
    const bool adds = c.chance(0.5), biased = c.chance(0.8), by_tanh = c.chance(0.8);
    c.note(adds ? "addend" : "no addend"), c.note(biased ? "bias" : "no bias");
    std::vector<Tensor> used, wide;
    for (const RandomTensor& each : given) {
      used.push_back(leaf(each));
      wide.push_back(used.back().detach().to(cpu).to(DType::f64).set_requires_grad());
    }
    const auto approximation = by_tanh ? GeluApproximation::tanh : GeluApproximation::none;
    const auto bias = [&](const Tensor& b) { return biased ? b : Tensor(); };
    const Tensor y = mlp(used[0], {used[1], bias(used[2]), used[3], used[4]},
                         {approximation, adds ? used[5] : Tensor()});
    Tensor expected =
        linear(gelu(linear(wide[0], wide[1], bias(wide[2])), approximation), wide[3], wide[4]);
    if (adds) expected = expected + wide[5];
    const RandomTensor dy = c.tensor(shape);
    y.backward(dy);
    expected.backward(static_cast<const Tensor&>(dy).to(cpu).to(DType::f64));
    if (auto r = is_near(y, expected, hidden); !r) return r << ": the output";
    for (std::size_t i = 0; i < used.size(); ++i)
      if (wide[i].grad().defined())
        if (auto r = is_near(used[i].grad(), wide[i].grad(), 64); !r)
          return r << ": the gradient of operand " << i;
    return ::testing::AssertionSuccess();
  }
  /// Of rounded hidden values, each of which may be as large as any: beside the largest.
  static ::testing::AssertionResult is_near(const Tensor& actual, const Tensor& expected,
                                            std::int64_t terms) {
    const auto count = static_cast<double>(terms);
    const double largest = expected.numel() ? max(abs(expected)).item<double>() : 0.0;
    const double allowed = 4 * sum_tolerance(actual.dtype(), count) * (largest + count);
    const Tensor values = actual.to(cpu).to(DType::f64);
    if (values.shape() == expected.shape() && allclose(values, expected, 0.0, allowed))
      return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << values << " beside " << expected;
  }
};

TEST_P(RandomMlp, AgreesWithItsLayersInF64) { run_cases(60, check_case); }
TEST_P(RandomMlp, SlowAgreesWithItsLayersInF64) { run_cases(5000, check_case); }

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomLinear,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);
INSTANTIATE_TEST_SUITE_P(
    Backends, RandomMlp,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
