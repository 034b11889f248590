#include "lockstep/autograd/ops/norm.hpp"

#include "support/random_cases.hpp"

namespace lockstep::testing {
namespace {

/// Normalised groups of elements, scaled and shifted, and all gradients, by loops. `members` lists
/// the elements of each group; `channel` says which weight an element has.
struct Normalised {
  Expected y, dx, dweight, dbias;

  template <class Channel>
  Normalised(const std::vector<std::vector<std::int64_t>>& groups, Channel&& channel,
             const Values& x, const Values& weight, const Values& bias, const Values& dy,
             double eps)
      : y(static_cast<std::int64_t>(x.size())),
        dx(static_cast<std::int64_t>(x.size())),
        dweight(static_cast<std::int64_t>(weight.size())),
        dbias(static_cast<std::int64_t>(weight.size())) {
    const auto at = [](const Values& values, std::int64_t i) {
      return values[static_cast<std::size_t>(i)];
    };
    for (const auto& group : groups) {
      const auto count = static_cast<double>(group.size());
      double mean = 0, variance = 0, slope_mean = 0, slope_product = 0;
      for (const auto i : group) mean += at(x, i) / count;
      for (const auto i : group) variance += (at(x, i) - mean) * (at(x, i) - mean) / count;
      const double rstd = 1 / std::sqrt(variance + eps);
      for (const auto i : group) {
        const double normal = (at(x, i) - mean) * rstd, slope = at(dy, i) * at(weight, channel(i));
        y.add(i, normal * at(weight, channel(i)));
        y.add(i, at(bias, channel(i)));
        dweight.add(channel(i), at(dy, i) * normal);
        dbias.add(channel(i), at(dy, i));
        slope_mean += slope / count;
        slope_product += slope * normal / count;
      }
      for (const auto i : group) {
        const double normal = (at(x, i) - mean) * rstd, slope = at(dy, i) * at(weight, channel(i));
        dx.add(i, rstd * slope);
        dx.add(i, -rstd * slope_mean);
        dx.add(i, -rstd * normal * slope_product);
        // Equal elements cancel, which rounding errors of the mean outlive.
        const double size = (std::abs(at(x, i)) + std::abs(mean)) * rstd;
        y.magnitudes[static_cast<std::size_t>(i)] += size * std::abs(at(weight, channel(i)));
        dx.magnitudes[static_cast<std::size_t>(i)] += size * rstd * std::abs(slope);
        dweight.magnitudes[static_cast<std::size_t>(channel(i))] += size * std::abs(at(dy, i));
      }
    }
    // Errors of mean and deviation reach every element.
    for (Expected* each : {&y, &dx, &dweight, &dbias}) {
      double largest = 1e-3;
      for (const double magnitude : each->magnitudes) largest = std::max(largest, magnitude);
      for (double& magnitude : each->magnitudes) magnitude = largest;
    }
  }
};

class RandomNorm : public RandomCases {
 protected:
  struct Operands {
    RandomTensor x, weight, bias, dy;
  };

  template <class Norm>
  static ::testing::AssertionResult compare(RandomCase& c, const Operands& o,
                                            const Normalised& expected, std::int64_t terms,
                                            Norm&& norm) {
    const Tensor x = leaf(o.x), weight = leaf(o.weight), bias = leaf(o.bias);
    const Tensor out = norm(x, weight, bias);
    const double tolerance = 2 * sum_tolerance(c.setting().dtype, static_cast<double>(terms));
    if (auto r = agrees(out, o.x.shape(), expected.y, tolerance); !r) return r << ": the output";
    out.backward(o.dy);
    if (auto r = agrees(x.grad(), o.x.shape(), expected.dx, tolerance); !r)
      return r << ": the input's gradient";
    if (auto r = agrees(weight.grad(), o.weight.shape(), expected.dweight, tolerance); !r)
      return r << ": the weight's gradient";
    if (auto r = agrees(bias.grad(), o.weight.shape(), expected.dbias, tolerance); !r)
      return r << ": the bias's gradient";
    return ::testing::AssertionSuccess();
  }

  static ::testing::AssertionResult check_layer_norm(RandomCase& c) {
    const std::int64_t width = 1 + c.extent(90, false);
    Shape shape = c.shape(static_cast<int>(c.integer(0, 3)), 8, 64, false);
    const std::int64_t rows = numel(shape);
    shape.push_back(width);
    const Operands o{c.tensor(shape), c.tensor({width}), c.tensor({width}), c.tensor(shape)};
    std::vector<std::vector<std::int64_t>> groups(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows * width; ++i)
      groups[static_cast<std::size_t>(i / width)].push_back(i);
    const Normalised expected(
        groups, [&](std::int64_t i) { return i % width; }, o.x.values, o.weight.values,
        o.bias.values, o.dy.values, 1e-2);
    return compare(c, o, expected, width + rows,
                   [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                     return layer_norm(x, {width}, w, b, 1e-2);
                   });
  }

  static ::testing::AssertionResult check_batch_norm(RandomCase& c) {
    const Shape shape{c.integer(2, 4), c.extent(20, false), c.integer(1, 6), c.integer(1, 6)};
    const DType dtype = c.setting().dtype;
    const DType weights = c.chance(0.5) || dtype == DType::f64 ? dtype : DType::f32;
    const std::int64_t channels = shape[1], positions = shape[2] * shape[3];
    const Operands o{c.image(shape, dtype), c.tensor({channels}, weights),
                     c.tensor({channels}, weights), c.tensor(shape)};
    std::vector<std::vector<std::int64_t>> groups(static_cast<std::size_t>(channels));
    const auto channel = [&](std::int64_t i) { return i / positions % channels; };
    for (std::int64_t i = 0; i < numel(shape); ++i)
      groups[static_cast<std::size_t>(channel(i))].push_back(i);
    const Normalised expected(groups, channel, o.x.values, o.weight.values, o.bias.values,
                              o.dy.values, 1e-2);
    return compare(c, o, expected, shape[0] * positions,
                   [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                     return batch_norm(x, {}, {}, w, b, {.training = true, .eps = 1e-2});
                   });
  }

  static ::testing::AssertionResult check_group_norm(RandomCase& c) {
    const std::int64_t parts = c.integer(1, 4), width = c.integer(1, 5);
    Shape shape{c.integer(1, 4), parts * width};
    const std::int64_t most = c.chance(0.3) ? 20 : 6;  // small planes are computed otherwise
    for (auto left = c.integer(0, 2); left > 0; --left) shape.push_back(c.integer(1, most));
    const std::int64_t channels = shape[1], positions = numel(shape) / shape[0] / channels;
    if (width * positions == 1) return ::testing::AssertionSuccess();  // alone, and so all 0
    c.note(parts, " groups");
    const Operands o{c.tensor(shape), c.tensor({channels}), c.tensor({channels}), c.tensor(shape)};
    std::vector<std::vector<std::int64_t>> groups(static_cast<std::size_t>(shape[0] * parts));
    for (std::int64_t i = 0; i < numel(shape); ++i)
      groups[static_cast<std::size_t>(i / (width * positions))].push_back(i);
    const Normalised expected(
        groups, [&](std::int64_t i) { return i / positions % channels; }, o.x.values,
        o.weight.values, o.bias.values, o.dy.values, 1e-2);
    return compare(c, o, expected, width * positions + shape[0],
                   [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                     return group_norm(x, parts, w, b, 1e-2);
                   });
  }
};

TEST_P(RandomNorm, NormalisesGroupsAsLoopsDo) { run_cases(60, check_group_norm); }
TEST_P(RandomNorm, NormalisesLayersAsLoopsDo) { run_cases(80, check_layer_norm); }
TEST_P(RandomNorm, NormalisesBatchesAsLoopsDo) { run_cases(80, check_batch_norm); }
TEST_P(RandomNorm, SlowNormalisesAsLoopsDo) {
  run_cases(20000, check_layer_norm);
  run_cases(20000, check_batch_norm);
  run_cases(20000, check_group_norm);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomNorm,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
