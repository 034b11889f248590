#include "lockstep/autograd/ops/spatial.hpp"
#include "random/naive.hpp"

namespace lockstep::testing {
namespace {

/// Shares of input positions in one position of the result, along one dimension.
using Shares = std::vector<std::pair<std::int64_t, double>>;

struct Axis {
  std::int64_t in, out;
  double factor;  ///< 0: given by the extents
  InterpolateOptions options;

  Shares shares(std::int64_t i) const {
    const auto last = static_cast<double>(in - 1);
    const double step =
        factor > 0 ? 1 / factor : static_cast<double>(in) / static_cast<double>(out);
    if (options.mode == InterpolationMode::nearest) {
      const bool exact =
          factor == 0 || static_cast<double>(in) * factor == static_cast<double>(out);
      const std::int64_t at =
          exact ? i * in / out : static_cast<std::int64_t>(static_cast<double>(i) * step);
      return {{std::min(at, in - 1), 1.0}};
    }
    double x = (static_cast<double>(i) + 0.5) * step - 0.5;
    if (options.align_corners)
      x = out == 1 ? 0 : static_cast<double>(i) * last / static_cast<double>(out - 1);
    x = std::clamp(x, 0.0, last);
    const double low = std::floor(x);
    return {{static_cast<std::int64_t>(low), 1 - (x - low)},
            {std::min(static_cast<std::int64_t>(low) + 1, in - 1), x - low}};
  }
};

class RandomInterpolation : public RandomCases {
 protected:
  static ::testing::AssertionResult check_case(RandomCase& c) {
    const Shape shape{c.integer(0, 20) ? c.integer(1, 3) : 0, c.extent(9, false), c.integer(1, 12),
                      c.integer(1, 12)};
    InterpolateOptions options;
    if (c.chance(0.6)) options.mode = InterpolationMode::bilinear;
    options.align_corners = options.mode == InterpolationMode::bilinear && c.chance(0.4);
    Axis rows{shape[2], 0, 0, options}, columns{shape[3], 0, 0, options};
    if (c.chance(0.5)) {
      options.size = {c.integer(1, 20), c.integer(1, 20)};
      rows.out = options.size.height, columns.out = options.size.width;
    } else {
      const auto factor = [&](Axis& axis) {
        axis.factor = c.chance(0.5) ? static_cast<double>(c.integer(1, 3)) : c.real(1, 3);
        axis.out = static_cast<std::int64_t>(static_cast<double>(axis.in) * axis.factor);
        return axis.factor;
      };
      const double height = factor(rows);
      options.scale_factor = {height, factor(columns)};
    }
    c.note("to ", rows.out, ' ', columns.out, " factors ", rows.factor, ' ', columns.factor,
           options.mode == InterpolationMode::bilinear ? " bilinear" : " nearest",
           options.align_corners ? " aligned" : "");
    const RandomTensor x = c.chance(0.8) ? c.image(shape, c.setting().dtype) : c.tensor(shape);
    const Shape result{shape[0], shape[1], rows.out, columns.out};
    const RandomTensor dy = c.tensor(result);
    Expected y(numel(result)), dx(numel(shape));
    std::int64_t to = 0;
    for (std::int64_t plane = 0; plane < shape[0] * shape[1]; ++plane)
      for (std::int64_t i = 0; i < rows.out; ++i)
        for (std::int64_t j = 0; j < columns.out; ++j, ++to)
          for (const auto& [h, row_share] : rows.shares(i))
            for (const auto& [w, column_share] : columns.shares(j)) {
              const std::int64_t from = (plane * shape[2] + h) * shape[3] + w;
              y.add(to, row_share * column_share * at(x.values, from));
              dx.add(from, row_share * column_share * at(dy.values, to));
            }
    const Tensor input = leaf(x), output = interpolate(input, options);
    const double allowed = 4 * sum_tolerance(c.setting().dtype, 100);
    // A position that rounding moves across one of the input's shifts shares by as much.
    for (double& magnitude : y.magnitudes) magnitude += 1e-3;
    for (double& magnitude : dx.magnitudes) magnitude += 1e-3;
    if (auto r = agrees(output, result, y, allowed); !r) return r << ": the output";
    output.backward(dy);
    return agrees(input.grad(), shape, dx, allowed) << ": the gradient";
  }
};

TEST_P(RandomInterpolation, AgreesWithLoops) { run_cases(120, check_case); }
TEST_P(RandomInterpolation, SlowAgreesWithLoops) { run_cases(20000, check_case); }

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomInterpolation,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
