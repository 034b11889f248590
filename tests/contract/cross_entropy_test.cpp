#include "arguments/cross_entropy.hpp"

#include "contract/backends.hpp"

namespace lockstep::test {
namespace {

/// Logits [rows, columns].
struct Logits {
  std::int64_t rows, columns;

  std::size_t at(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * columns + column);
  }
  /// The log-sum-exp of a row.
  double lse(const Values& x, std::int64_t row) const {
    double top = -INFINITY, sum = 0;
    for (int c = 0; c < columns; ++c) top = std::max(top, x[at(row, c)]);
    for (int c = 0; c < columns; ++c) sum += std::exp(x[at(row, c)] - top);
    return top + std::log(sum);
  }
  /// The loss of row r: (1 - s) w_t (lse - x_t) + s / C sum_c w_c (lse - x_c).
  double loss(const Values& x, std::int64_t r, std::int64_t target, const Values& weight,
              double smoothing) const {
    const double log_sum = lse(x, r);
    double spread = 0;
    for (int c = 0; c < columns; ++c)
      spread += weight[static_cast<std::size_t>(c)] * (log_sum - x[at(r, c)]);
    return (1 - smoothing) * weight[static_cast<std::size_t>(target)] *
               (log_sum - x[at(r, target)]) +
           smoothing / static_cast<double>(columns) * spread;
  }
};

class CrossEntropyContract : public ContractTest {
 protected:
  const kernels::CrossEntropyKernels& family() { return backend().cross_entropy; }
  DeviceArray statistics(const Shape& shape) const { return array(statistics_dtype(), shape); }
  void check(const Logits& logits);
  void check_in_one_pass(std::int64_t rows, std::int64_t classes, std::int64_t columns);
};

void CrossEntropyContract::check(const Logits& logits) {
  const auto [rows, columns] = logits;
  const auto count = static_cast<std::size_t>(rows), classes = static_cast<std::size_t>(columns);
  const auto x = array({rows, columns}).randomize(1, -4, 4), dx = array({rows, columns});
  const auto weight = array({columns}).randomize(3, 0.5, 2.0);
  Values labels = random_values(rows, 5, 0, static_cast<double>(columns - 1));
  for (double& label : labels) label = std::floor(label);
  labels[4] = -100;
  const auto targets = array(DType::i64, {rows}).set(labels);
  const auto loss = statistics({rows}), kept = statistics({rows, 2}), counted = statistics({rows});
  const auto dloss = statistics({rows}).set(Values(count, 0.5));
  for (const bool weighted : {false, true})
    for (const double smoothing : {0.0, 0.1}) {
      const ArrayView weights = weighted ? weight.view() : ArrayView{};
      const kernels::CrossEntropyOptions options{.label_smoothing = smoothing};
      family().forward({.loss = loss,
                        .statistics = kept,
                        .row_weight = counted,
                        .logits = x,
                        .targets = targets,
                        .weight = weights,
                        .options = options},
                       stream());
      family().backward({.dlogits = dx,
                         .dloss = dloss,
                         .logits = x,
                         .targets = targets,
                         .weight = weights,
                         .statistics = kept,
                         .options = options},
                        stream());
      const Values in = x.get();
      const Values w = weighted ? weight.get() : Values(classes, 1.0);
      Values expected(count), counts(count), slope(in.size());
      for (int r = 0; r < rows; ++r) {
        if (r == 4) continue;
        const auto target = static_cast<std::int64_t>(labels[static_cast<std::size_t>(r)]);
        const auto row = static_cast<std::size_t>(r);
        expected[row] = logits.loss(in, r, target, w, smoothing);
        counts[row] = w[static_cast<std::size_t>(target)];
        for (int c = 0; c < columns; ++c) {
          Values up = in, down = in;
          up[logits.at(r, c)] += 1e-5;
          down[logits.at(r, c)] -= 1e-5;
          slope[logits.at(r, c)] = 0.5 *
                                   (logits.loss(up, r, target, w, smoothing) -
                                    logits.loss(down, r, target, w, smoothing)) /
                                   2e-5;
        }
      }
      EXPECT_TRUE(close(loss.get(), expected, tolerance(4)));
      EXPECT_TRUE(close(counted.get(), counts, tolerance()));
      EXPECT_TRUE(close(dx.get(), slope, 1e-8 + tolerance(8)));
    }
}

TEST_P(CrossEntropyContract, MatchesFormulasAndDifferences) { check({13, 101}); }
// A CPU takes the exponentials of short rows many rows at a time.
TEST_P(CrossEntropyContract, MatchesFormulasAndDifferencesForFewClasses) {
  for (const Logits& logits : {Logits{120, 10}, {20, 31}, {5, 32}, {5, 1}}) {
    SCOPED_TRACE(logits.columns);
    check(logits);
  }
}

/// `gradient` against `forward` and `backward`. Columns behind the classes hold NaN before.
void CrossEntropyContract::check_in_one_pass(std::int64_t rows, std::int64_t classes,
                                             std::int64_t columns) {
  const auto n = static_cast<std::size_t>(rows);
  const auto x = array({rows, classes}).randomize(1, -4, 4), dx = array({rows, classes});
  Values wide, labels = random_values(rows, 5, 0, static_cast<double>(classes));
  const Values values = x.get();
  for (std::size_t r = 0; r < n; ++r) {
    labels[r] = std::floor(labels[r]);
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(r) * classes;
    wide.insert(wide.end(), first, first + classes);
    wide.insert(wide.end(), static_cast<std::size_t>(columns - classes), NAN);
  }
  labels[1] = -100;
  const auto targets = array(DType::i64, {rows}).set(labels);
  const auto loss = statistics({rows}), kept = statistics({rows, 2}), counted = statistics({rows});
  const auto both_loss = statistics({rows}), both_counted = statistics({rows});
  const auto slope = statistics({rows}).randomize(9), ones = statistics({rows}).set(Values(n, 1));
  for (const bool has_slope : {false, true}) {
    const auto in_place = array({rows, columns}).set(wide);
    const kernels::CrossEntropyOptions options{.label_smoothing = has_slope ? 0.1 : 0.0};
    family().forward({.loss = loss,
                      .statistics = kept,
                      .row_weight = counted,
                      .logits = x,
                      .targets = targets,
                      .options = options},
                     stream());
    family().backward({.dlogits = dx,
                       .dloss = has_slope ? slope : ones,
                       .logits = x,
                       .targets = targets,
                       .statistics = kept,
                       .options = options},
                      stream());
    family().gradient({.loss = both_loss,
                       .row_weight = both_counted,
                       .logits = in_place,
                       .classes = classes,
                       .targets = targets,
                       .dloss = has_slope ? slope.view() : ArrayView{},
                       .options = options},
                      stream());
    EXPECT_TRUE(close(both_loss.get(), loss.get(), tolerance(8)));
    EXPECT_EQ(both_counted.get(), counted.get());
    Values expected, gradient = dx.get();
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto first = gradient.begin() + r * classes;
      expected.insert(expected.end(), first, first + classes);
      expected.insert(expected.end(), static_cast<std::size_t>(columns - classes), 0.0);
    }
    EXPECT_TRUE(close(in_place.get(), expected, tolerance()));
  }
}

TEST_P(CrossEntropyContract, LossAndGradientInOnePassAreThoseOfTwo) {
  check_in_one_pass(9, 101, 101);
  check_in_one_pass(3, 7, 16);
  check_in_one_pass(5, 1027, 1088);  // on a GPU a block a row
  // On a GPU some blocks have two rows of 16 bits, one after another.
  if (size_of(dtype()) == 2) check_in_one_pass(270, 1027, 1032);
}

TEST_P(CrossEntropyContract, LosesInRowsThatLieApart) {
  const auto x = array({4, 21}).randomize(1);
  const DeviceArray apart = DeviceArray(dtype(), {4, 21}, {32, 1}, GetParam().device).set(x.get());
  const auto targets = array(DType::i64, {4}).set({3, 0, -100, 20});
  Values losses[2];
  for (const bool is_apart : {false, true}) {
    const auto loss = statistics({4}), kept = statistics({4, 2}), counted = statistics({4});
    family().forward({.loss = loss,
                      .statistics = kept,
                      .row_weight = counted,
                      .logits = is_apart ? apart : x,
                      .targets = targets},
                     stream());
    losses[is_apart] = loss.get();
  }
  EXPECT_TRUE(close(losses[1], losses[0], tolerance(8)));  // wide loads add in another order
}

// What is left of a transposed or sliced array without its rows is contiguous, like all that is
// empty.
TEST_P(CrossEntropyContract, NoRowsMayHaveAnyStrides) {
  const auto targets = array(DType::i64, {0});
  const auto loss = statistics({0}), kept = statistics({0, 2}), counted = statistics({0});
  for (const Strides& strides : {Strides{1, 0}, Strides{98, 3}, Strides{1, 3}, Strides{0, 1}}) {
    SCOPED_TRACE(strides);
    const DeviceArray x(dtype(), {0, 4}, strides, GetParam().device);
    family().forward(
        {.loss = loss, .statistics = kept, .row_weight = counted, .logits = x, .targets = targets},
        stream());
    family().backward(
        {.dlogits = x, .dloss = loss, .logits = x, .targets = targets, .statistics = kept},
        stream());
    family().gradient(
        {.loss = loss, .row_weight = counted, .logits = x, .classes = 4, .targets = targets},
        stream());
    EXPECT_EQ(loss.get(), Values());
  }
}

TEST_P(CrossEntropyContract, GradientsAreScaledByOneNumberOverAnother) {
  const auto dloss = statistics({1}).set({3}), counted = statistics({1}).set({4});
  const auto none = statistics({1}).set({0});
  const auto wide = statistics({2, 50}).randomize(1), own = array({2, 50}).randomize(2);
  for (const auto* unit : {&wide, &own}) {
    const auto out = array({2, 50}).randomize(3);
    const Values held = out.get(), given = unit->get();
    Values scaled(100), added(100);
    for (std::size_t i = 0; i < 100; ++i)
      scaled[i] = given[i] * 0.75, added[i] = held[i] + scaled[i];
    const auto scale = [&](const ArrayView& over, bool accumulate) {
      family().scale_gradient(
          {.out = out, .unit = *unit, .dloss = dloss, .counted = over, .accumulate = accumulate},
          stream());
      return out.get();
    };
    EXPECT_TRUE(close(scale(counted, true), added, tolerance()));
    EXPECT_TRUE(close(scale(counted, false), scaled, tolerance()));
    EXPECT_EQ(scale(none, false), Values(100));
  }
}

TEST_P(CrossEntropyContract, IgnoredRowsOfNoClassesLoseNothing) {
  const auto x = array({2, 0});
  const auto targets = array(DType::i64, {2}).set({-100, -100});
  const auto loss = statistics({2}).randomize(1), counted = statistics({2}).randomize(2);
  const auto kept = statistics({2, 2});
  family().forward(
      {.loss = loss, .statistics = kept, .row_weight = counted, .logits = x, .targets = targets},
      stream());
  EXPECT_EQ(loss.get(), Values(2));
  EXPECT_EQ(counted.get(), Values(2));
}

TEST_P(CrossEntropyContract, NamesABadTarget) {
  if (GetParam().device.is_cuda()) return;
  const auto x = array({2, 3}).randomize(1);
  const auto targets = array(DType::i64, {2}).set({1, 3});
  const auto loss = statistics({2}), kept = statistics({2, 2}), counted = statistics({2});
  const kernels::CrossEntropyArguments arguments{
      .loss = loss, .statistics = kept, .row_weight = counted, .logits = x, .targets = targets};
  EXPECT_THROW(family().forward(arguments, stream()), InvalidArgument);
}

TEST_P(CrossEntropyContract, GivesNaNForABadTargetThatTheHostDoesNotRead) {
  if (GetParam().device.is_cpu()) return;
  const auto x = array({2, 3}).randomize(1), dx = array({2, 3});
  const auto targets = array(DType::i64, {2}).set({1, 3});
  const auto loss = statistics({2}), kept = statistics({2, 2}), counted = statistics({2});
  family().forward(
      {.loss = loss, .statistics = kept, .row_weight = counted, .logits = x, .targets = targets},
      stream());
  const auto dloss = statistics({2}).set({1, 1});
  family().backward(
      {.dlogits = dx, .dloss = dloss, .logits = x, .targets = targets, .statistics = kept},
      stream());
  const Values losses = loss.get(), gradients = dx.get();
  EXPECT_FALSE(std::isnan(losses[0]) || std::isnan(gradients[0]));
  EXPECT_TRUE(std::isnan(losses[1]));
  for (std::size_t i = 3; i < 6; ++i) EXPECT_TRUE(std::isnan(gradients[i]));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, CrossEntropyContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
