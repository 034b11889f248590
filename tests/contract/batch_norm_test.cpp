#include "arguments/batch_norm.hpp"

#include <array>
#include <cmath>

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

constexpr double eps = 1e-3;

/// The layer in doubles, one channel after the other.
struct NaiveBatchNorm {
  std::int64_t images, channels, positions;

  explicit NaiveBatchNorm(const Shape& shape)
      : images(shape[0]), channels(shape[1]), positions(numel(shape) / shape[0] / shape[1]) {}
  std::size_t channel(std::size_t i) const {
    return i / static_cast<std::size_t>(positions) % static_cast<std::size_t>(channels);
  }
  double count() const { return static_cast<double>(images * positions); }
  Values mean(const Values& x) const {
    Values sums(static_cast<std::size_t>(channels));
    for (std::size_t i = 0; i < x.size(); ++i) sums[channel(i)] += x[i] / count();
    return sums;
  }
  Values variance(const Values& x) const {
    const Values centre = mean(x);
    Values squares = x;
    for (std::size_t i = 0; i < x.size(); ++i)
      squares[i] = (x[i] - centre[channel(i)]) * (x[i] - centre[channel(i)]);
    return mean(squares);
  }
  Values normalise(const Values& x, const Values& centre, const Values& var, const Values& weight,
                   const Values& bias) const {
    Values y = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto c = channel(i);
      y[i] = (x[i] - centre[c]) / std::sqrt(var[c] + eps) * weight[c] + bias[c];
    }
    return y;
  }
};

class BatchNormContract : public ContractTest {
 protected:
  struct Layout {
    Shape shape;
    Strides strides;
  };
  static std::vector<Layout> layouts() {
    std::vector<Layout> all;
    for (const Shape& shape : {Shape{6, 5}, Shape{3, 4, 7}, Shape{2, 16, 5, 3}, Shape{4, 3, 1, 1}})
      all.push_back({shape, contiguous_strides(shape)});
    all.push_back({{2, 16, 5, 3}, channels_last_strides({2, 16, 5, 3})});
    return all;
  }
  DeviceArray vector(std::int64_t count) const { return array(statistics_dtype(), {count}); }
  const kernels::BatchNormKernels& family() const { return backend().batch_norm; }
  /// Tolerance of results that are rounded to the data's dtype.
  double loose() const { return 2 * rounding(dtype()) + 1e4 * rounding(statistics_dtype()) * 1e-1; }
  double tight() const { return 1e3 * rounding(statistics_dtype()); }
};

TEST_P(BatchNormContract, TrainingNormalisesAndMovesTheRunningValues) {
  for (const auto& [shape, strides] : layouts()) {
    SCOPED_TRACE(::testing::Message() << shape << strides);
    const NaiveBatchNorm naive(shape);
    auto x = array(shape, strides).randomize(1, -1, 3), y = array(shape, strides);
    auto weight = vector(shape[1]).randomize(2, 0.5, 2), bias = vector(shape[1]).randomize(3);
    auto running_mean = vector(shape[1]).randomize(4);
    auto running_var = vector(shape[1]).randomize(5, 0.5, 2);
    auto save_mean = vector(shape[1]), save_rstd = vector(shape[1]);
    Values moved_mean = running_mean.get(), moved_var = running_var.get();
    const Values mean = naive.mean(x.get()), var = naive.variance(x.get());
    Values rstd = var;
    for (std::size_t c = 0; c < var.size(); ++c) {
      const double unbiased = var[c] * naive.count() / (naive.count() - 1);
      moved_mean[c] += 0.2 * (mean[c] - moved_mean[c]);
      moved_var[c] += 0.2 * (unbiased - moved_var[c]);
      rstd[c] = 1 / std::sqrt(var[c] + eps);
    }
    family().train({.y = y,
                    .save_mean = save_mean,
                    .save_rstd = save_rstd,
                    .running_mean = running_mean,
                    .running_var = running_var,
                    .x = x,
                    .weight = weight,
                    .bias = bias,
                    .momentum = 0.2,
                    .eps = eps},
                   stream());
    const Values expected = naive.normalise(x.get(), mean, var, weight.get(), bias.get());
    EXPECT_TRUE(close(y.get(), expected, loose()));
    EXPECT_TRUE(close(save_mean.get(), mean, tight()));
    EXPECT_TRUE(close(save_rstd.get(), rstd, tight()));
    EXPECT_TRUE(close(running_mean.get(), moved_mean, tight()));
    EXPECT_TRUE(close(running_var.get(), moved_var, tight()));
  }
}

TEST_P(BatchNormContract, EvaluationUsesTheRunningValues) {
  for (const auto& [shape, strides] : layouts()) {
    const NaiveBatchNorm naive(shape);
    auto x = array(shape, strides).randomize(1), y = array(shape, strides);
    auto weight = vector(shape[1]).randomize(2, 0.5, 2), bias = vector(shape[1]).randomize(3);
    auto mean = vector(shape[1]).randomize(4), var = vector(shape[1]).randomize(5, 0.5, 2);
    family().eval({.y = y,
                   .running_mean = mean,
                   .running_var = var,
                   .x = x,
                   .weight = weight,
                   .bias = bias,
                   .eps = eps},
                  stream());
    EXPECT_TRUE(close(y.get(),
                      naive.normalise(x.get(), mean.get(), var.get(), weight.get(), bias.get()),
                      loose()));
  }
}

TEST_P(BatchNormContract, WorksWithoutWeightsAndRunningValues) {
  const Shape shape{4, 3, 2, 2};
  const NaiveBatchNorm naive(shape);
  auto x = array(shape).randomize(1), y = array(shape);
  auto save_mean = vector(3), save_rstd = vector(3);
  family().train({.y = y, .save_mean = save_mean, .save_rstd = save_rstd, .x = x, .eps = eps},
                 stream());
  const Values expected = naive.normalise(x.get(), naive.mean(x.get()), naive.variance(x.get()),
                                          Values(3, 1.0), Values(3, 0.0));
  EXPECT_TRUE(close(y.get(), expected, loose()));
}

/// Gradients against central differences of the loss sum(y * dy).
TEST_P(BatchNormContract, GradientsMatchFiniteDifferences) {
  for (const bool training : {true, false})
    for (const auto& [shape, strides] : layouts()) {
      SCOPED_TRACE(::testing::Message() << shape << strides << " training " << training);
      const NaiveBatchNorm naive(shape);
      auto x = array(shape, strides).randomize(1), dy = array(shape, strides).randomize(6);
      auto weight = vector(shape[1]).randomize(2, 0.5, 2), bias = vector(shape[1]).randomize(3);
      auto mean = vector(shape[1]).randomize(4), var = vector(shape[1]).randomize(5, 0.5, 2);
      const Values gradient = dy.get();
      const auto loss = [&](const Values& at, const Values& w, const Values& b) {
        const Values y = training ? naive.normalise(at, naive.mean(at), naive.variance(at), w, b)
                                  : naive.normalise(at, mean.get(), var.get(), w, b);
        double total = 0;
        for (std::size_t i = 0; i < y.size(); ++i) total += y[i] * gradient[i];
        return total;
      };
      const auto difference = [](Values at, auto&& f) {
        Values slope(at.size());
        for (std::size_t i = 0; i < at.size(); ++i) {
          const double centre = at[i], step = 1e-5;
          at[i] = centre + step;
          const double above = f(at);
          at[i] = centre - step;
          slope[i] = (above - f(at)) / (2 * step);
          at[i] = centre;
        }
        return slope;
      };
      const Values in = x.get(), w = weight.get(), b = bias.get();
      auto dx = array(shape, strides), dweight = vector(shape[1]), dbias = vector(shape[1]);
      if (training) {
        auto save_mean = vector(shape[1]), save_rstd = vector(shape[1]), y = array(shape, strides);
        family().train({.y = y,
                        .save_mean = save_mean,
                        .save_rstd = save_rstd,
                        .x = x,
                        .weight = weight,
                        .bias = bias,
                        .eps = eps},
                       stream());
        family().train_backward({.dx = dx,
                                 .dweight = dweight,
                                 .dbias = dbias,
                                 .dy = dy,
                                 .x = x,
                                 .weight = weight,
                                 .save_mean = save_mean,
                                 .save_rstd = save_rstd},
                                stream());
      } else {
        family().eval_backward({.dx = dx,
                                .dweight = dweight,
                                .dbias = dbias,
                                .dy = dy,
                                .x = x,
                                .weight = weight,
                                .running_mean = mean,
                                .running_var = var,
                                .eps = eps},
                               stream());
      }
      const double tolerance = loose() + 1e-6;
      EXPECT_TRUE(
          close(dx.get(), difference(in, [&](auto& v) { return loss(v, w, b); }), tolerance));
      EXPECT_TRUE(
          close(dweight.get(), difference(w, [&](auto& v) { return loss(in, v, b); }), tolerance));
      EXPECT_TRUE(
          close(dbias.get(), difference(b, [&](auto& v) { return loss(in, w, v); }), tolerance));
    }
}

/// Images that are worked on in many parts, with numbers of channels that fill whole vectors or do
/// not.
TEST_P(BatchNormContract, LargeImagesInEitherOrder) {
  for (const Shape& shape : {Shape{3, 70, 31, 33}, Shape{2, 300, 9, 20}, Shape{3, 128, 20, 11},
                             Shape{3, 5, 90, 91}, Shape{2, 2, 260, 261}})
    for (const bool channels_last : {true, false}) {
      const Strides strides =
          channels_last ? channels_last_strides(shape) : contiguous_strides(shape);
      SCOPED_TRACE(::testing::Message() << shape << strides);
      const NaiveBatchNorm naive(shape);
      auto x = array(shape, strides).randomize(1, 2, 5), dy = array(shape, strides).randomize(2);
      auto y = array(shape, strides), dx = array(shape, strides);
      auto weight = vector(shape[1]).randomize(3, 0.5, 2), bias = vector(shape[1]).randomize(4);
      auto mean = vector(shape[1]), rstd = vector(shape[1]);
      auto dweight = vector(shape[1]), dbias = vector(shape[1]);
      family().train({.y = y,
                      .save_mean = mean,
                      .save_rstd = rstd,
                      .x = x,
                      .weight = weight,
                      .bias = bias,
                      .eps = eps},
                     stream());
      family().train_backward({.dx = dx,
                               .dweight = dweight,
                               .dbias = dbias,
                               .dy = dy,
                               .x = x,
                               .weight = weight,
                               .save_mean = mean,
                               .save_rstd = rstd},
                              stream());
      const Values in = x.get(), gradient = dy.get(), w = weight.get();
      const Values centre = naive.mean(in), var = naive.variance(in);
      EXPECT_TRUE(close(mean.get(), centre, tight()));
      EXPECT_TRUE(close(y.get(), naive.normalise(in, centre, var, w, bias.get()), loose()));
      const Values hat =
          naive.normalise(in, centre, var, Values(w.size(), 1.0), Values(w.size(), 0.0));
      Values products = gradient, expected = gradient, sums, product_sums;
      for (std::size_t i = 0; i < hat.size(); ++i) products[i] *= hat[i];
      const Values mean_dy = naive.mean(gradient), mean_product = naive.mean(products);
      for (std::size_t i = 0; i < hat.size(); ++i) {
        const auto c = naive.channel(i);
        expected[i] =
            w[c] / std::sqrt(var[c] + eps) * (gradient[i] - mean_dy[c] - hat[i] * mean_product[c]);
      }
      for (std::size_t c = 0; c < w.size(); ++c) {
        sums.push_back(mean_dy[c] * naive.count());
        product_sums.push_back(mean_product[c] * naive.count());
      }
      EXPECT_TRUE(close(dx.get(), expected, loose()));
      EXPECT_TRUE(close(dbias.get(), sums, 10 * tight()));
      EXPECT_TRUE(close(dweight.get(), product_sums, 10 * tight()));
      EXPECT_TRUE(counters_are_zero());
    }
}

/// With and without a residual, in both modes: y is the layer's result plus the residual through
/// ReLU, and the gradients are those of what came in front of ReLU.
TEST_P(BatchNormContract, AResidualAndReluFollowInOnePass) {
  std::vector<Layout> all = layouts();
  for (const Shape& shape : {Shape{3, 70, 5, 7}, Shape{2, 1100, 3, 1}})
    all.push_back({shape, channels_last_strides(shape)});
  all.push_back({{3, 70, 5, 7}, contiguous_strides({3, 70, 5, 7})});
  // A block of a GPU has one channel here: more of them are more of the same.
  if (GetParam().device.is_cpu())
    all.push_back({{2, 1100, 3, 1}, contiguous_strides({2, 1100, 3, 1})});
  for (const auto& [shape, strides] : all)
    for (const bool training : {true, false})
      for (const bool adds : {true, false}) {
        SCOPED_TRACE(::testing::Message()
                     << shape << strides << " training " << training << " residual " << adds);
        const NaiveBatchNorm naive(shape);
        auto x = array(shape, strides).randomize(1), dy = array(shape, strides).randomize(6);
        auto residual = array(shape, strides).randomize(7), y = array(shape, strides);
        auto weight = vector(shape[1]).randomize(2, 0.5, 2), bias = vector(shape[1]).randomize(3);
        auto mean = vector(shape[1]).randomize(4), var = vector(shape[1]).randomize(5, 0.5, 2);
        auto save_mean = vector(shape[1]), save_rstd = vector(shape[1]);
        kernels::BatchNormTrainArguments train{.y = y,
                                               .save_mean = save_mean,
                                               .save_rstd = save_rstd,
                                               .x = x,
                                               .weight = weight,
                                               .bias = bias,
                                               .eps = eps};
        kernels::BatchNormEvalArguments eval{.y = y,
                                             .running_mean = mean,
                                             .running_var = var,
                                             .x = x,
                                             .weight = weight,
                                             .bias = bias,
                                             .eps = eps};
        train.relu = eval.relu = true;
        if (adds) train.residual = eval.residual = residual;
        training ? family().train(train, stream()) : family().eval(eval, stream());
        Values expected = naive.normalise(x.get(), training ? naive.mean(x.get()) : mean.get(),
                                          training ? naive.variance(x.get()) : var.get(),
                                          weight.get(), bias.get());
        const Values added = residual.get();
        for (std::size_t i = 0; i < expected.size(); ++i)
          expected[i] = std::max(expected[i] + (adds ? added[i] : 0.0), 0.0);
        EXPECT_TRUE(close(y.get(), expected, loose()));

        Values in_front = dy.get();
        const Values result = y.get();
        for (std::size_t i = 0; i < in_front.size(); ++i)
          if (result[i] <= 0) in_front[i] = 0;
        auto masked = array(shape, strides);
        masked.set(in_front);
        const auto gradients = [&](const DeviceArray& dx, const DeviceArray& from,
                                   const kernels::BatchNormRelu& relu) {
          auto dweight = vector(shape[1]), dbias = vector(shape[1]);
          if (training)
            family().train_backward({.dx = dx,
                                     .dweight = dweight,
                                     .dbias = dbias,
                                     .dy = from,
                                     .x = x,
                                     .weight = weight,
                                     .save_mean = save_mean,
                                     .save_rstd = save_rstd,
                                     .relu = relu},
                                    stream());
          else
            family().eval_backward({.dx = dx,
                                    .dweight = dweight,
                                    .dbias = dbias,
                                    .dy = from,
                                    .x = x,
                                    .weight = weight,
                                    .running_mean = mean,
                                    .running_var = var,
                                    .eps = eps,
                                    .relu = relu},
                                   stream());
          return std::array{dx.get(), dweight.get(), dbias.get()};
        };
        auto plain = array(shape, strides), dx = array(shape, strides), dz = array(shape, strides);
        const auto of_masked = gradients(plain, masked, {});
        const auto apart = gradients(dx, dy, {.y = y, .dz = dz});
        EXPECT_EQ(dz.get(), in_front);
        const auto shared = gradients(dx, dy, {.y = y, .dz = dx});
        for (std::size_t k = 0; k < of_masked.size(); ++k) {
          EXPECT_TRUE(close(apart[k], of_masked[k], k == 0 ? loose() : 10 * tight())) << k;
          EXPECT_EQ(apart[k], shared[k]) << k;
        }
        if (adds) continue;
        const auto alone =
            gradients(dx, dy, {.y = y, .dz = dx, .has_residual = false, .bias = bias});
        for (std::size_t k = 0; k < alone.size(); ++k)
          EXPECT_TRUE(close(alone[k], of_masked[k], k == 0 ? loose() : 10 * tight())) << k;
      }
}

/// The parts, put together, are training.
TEST_P(BatchNormContract, PartsMakeUpTraining) {
  for (const auto& [shape, strides] : layouts()) {
    SCOPED_TRACE(::testing::Message() << shape << strides);
    const NaiveBatchNorm naive(shape);
    auto x = array(shape, strides).randomize(1, -1, 3), dy = array(shape, strides).randomize(6);
    auto weight = vector(shape[1]).randomize(2, 0.5, 2), bias = vector(shape[1]).randomize(3);
    auto mean = vector(shape[1]), variance = vector(shape[1]);
    family().statistics({.mean = mean, .variance = variance, .x = x}, stream());
    EXPECT_TRUE(close(mean.get(), naive.mean(x.get()), tight()));
    EXPECT_TRUE(close(variance.get(), naive.variance(x.get()), tight()));
    auto y = array(shape, strides), dz = array(shape, strides), dx = array(shape, strides);
    family().eval({.y = y,
                   .running_mean = mean,
                   .running_var = variance,
                   .x = x,
                   .weight = weight,
                   .bias = bias,
                   .eps = eps,
                   .relu = true},
                  stream());
    auto dy_sum = vector(shape[1]), product_sum = vector(shape[1]);
    family().gradient_sums({.dy_sum = dy_sum,
                            .product_sum = product_sum,
                            .dy = dy,
                            .x = x,
                            .mean = mean,
                            .variance = variance,
                            .eps = eps,
                            .relu = {.y = y, .dz = dz}},
                           stream());
    auto dy_mean = vector(shape[1]), product_mean = vector(shape[1]);
    Values plain = dy_sum.get(), product = product_sum.get();
    for (double& value : plain) value /= naive.count();
    for (double& value : product) value /= naive.count();
    dy_mean.set(plain);
    product_mean.set(product);
    family().input_gradient({.dx = dx,
                             .dy = dz,
                             .x = x,
                             .weight = weight,
                             .mean = mean,
                             .variance = variance,
                             .dy_mean = dy_mean,
                             .product_mean = product_mean,
                             .eps = eps},
                            stream());
    auto save_mean = vector(shape[1]), save_rstd = vector(shape[1]),
         whole_y = array(shape, strides);
    family().train({.y = whole_y,
                    .save_mean = save_mean,
                    .save_rstd = save_rstd,
                    .x = x,
                    .weight = weight,
                    .bias = bias,
                    .eps = eps,
                    .relu = true},
                   stream());
    EXPECT_TRUE(close(y.get(), whole_y.get(), loose()));
    auto whole_dx = array(shape, strides), dweight = vector(shape[1]), dbias = vector(shape[1]);
    family().train_backward({.dx = whole_dx,
                             .dweight = dweight,
                             .dbias = dbias,
                             .dy = dy,
                             .x = x,
                             .weight = weight,
                             .save_mean = save_mean,
                             .save_rstd = save_rstd,
                             .relu = {.y = y, .dz = dz}},
                            stream());
    EXPECT_TRUE(close(dx.get(), whole_dx.get(), loose()));
    EXPECT_TRUE(close(product_sum.get(), dweight.get(), 10 * tight()));
    EXPECT_TRUE(close(dy_sum.get(), dbias.get(), 10 * tight()));
  }
}

TEST_P(BatchNormContract, AbsentGradientsAreNotWritten) {
  const Shape shape{4, 3, 2, 2};
  auto x = array(shape).randomize(1), dy = array(shape).randomize(2), dx = array(shape);
  auto mean = vector(3).randomize(3), rstd = vector(3).randomize(4, 0.5, 2), dbias = vector(3);
  kernels::BatchNormTrainBackwardArguments training{
      .dx = dx, .dy = dy, .x = x, .save_mean = mean, .save_rstd = rstd};
  EXPECT_NO_THROW(family().train_backward(training, stream()));
  training.dx = {};
  training.dbias = dbias;
  EXPECT_NO_THROW(family().train_backward(training, stream()));
  const kernels::BatchNormEvalBackwardArguments evaluation{
      .dx = dx, .dy = dy, .x = x, .running_mean = mean, .running_var = rstd, .eps = eps};
  EXPECT_NO_THROW(family().eval_backward(evaluation, stream()));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, BatchNormContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
