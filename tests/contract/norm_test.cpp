#include "arguments/norm.hpp"

#include "contract/backends.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::test {
namespace {

constexpr std::int64_t rows = 13, columns = 101;
constexpr auto at(std::int64_t row, std::int64_t column) {
  return static_cast<std::size_t>(row * columns + column);
}

class NormContract : public ContractTest {
 protected:
  const kernels::NormKernels& family() { return backend().norm; }
  DeviceArray statistics(const Shape& shape) const { return array(statistics_dtype(), shape); }
};

/// One normalisation in double: y, and by differences the gradients of sum(y * dy).
double norm_objective(const Values& x, const Values& w, const Values& b, const Values& dy,
                      bool centred, Values* y = nullptr) {
  double total = 0;
  for (int r = 0; r < rows; ++r) {
    double mean = 0, squares = 0;
    for (int c = 0; centred && c < columns; ++c) mean += x[at(r, c)] / columns;
    for (int c = 0; c < columns; ++c) squares += std::pow(x[at(r, c)] - mean, 2) / columns;
    for (int c = 0; c < columns; ++c) {
      const auto k = static_cast<std::size_t>(c);
      const double value = (x[at(r, c)] - mean) / std::sqrt(squares + 1e-5) * w[k] + b[k];
      if (y) (*y)[at(r, c)] = value;
      total += value * dy[at(r, c)];
    }
  }
  return total;
}

Values differences(Values& values, const std::function<double()>& objective) {
  Values slope;
  for (double& value : values) {
    const double held = value;
    value = held + 1e-4;
    const double up = objective();
    value = held - 1e-4;
    slope.push_back((up - objective()) / 2e-4);
    value = held;
  }
  return slope;
}

TEST_P(NormContract, MatchFormulasAndDifferences) {
  const auto x = array({rows, columns}).randomize(1, 1.0, 3.0);
  const auto weight = array({columns}).randomize(2, 0.5, 1.5), bias = array({columns}).randomize(3);
  const auto dy = array({rows, columns}).randomize(4);
  for (const bool centred : {true, false}) {
    const auto y = array({rows, columns}), dx = array({rows, columns});
    const auto dweight = array({columns}), dbias = array({columns});
    const auto mean = statistics({rows}), rstd = statistics({rows});
    if (centred) {
      family().layer_norm(
          {.y = y, .mean = mean, .rstd = rstd, .x = x, .weight = weight, .bias = bias}, stream());
      family().layer_norm_backward({.dx = dx,
                                    .dweight = dweight,
                                    .dbias = dbias,
                                    .dy = dy,
                                    .x = x,
                                    .weight = weight,
                                    .mean = mean,
                                    .rstd = rstd},
                                   stream());
    } else {
      family().rms_norm({.y = y, .rstd = rstd, .x = x, .weight = weight}, stream());
      family().rms_norm_backward(
          {.dx = dx, .dweight = dweight, .dy = dy, .x = x, .weight = weight, .rstd = rstd},
          stream());
    }
    Values in = x.get(), w = weight.get(), b = centred ? bias.get() : Values(columns, 0.0);
    const Values g = dy.get();
    Values expected(in.size());
    norm_objective(in, w, b, g, centred, &expected);
    const auto objective = [&] { return norm_objective(in, w, b, g, centred); };
    EXPECT_TRUE(close(y.get(), expected, tolerance(16)));
    EXPECT_TRUE(close(dweight.get(), differences(w, objective), 1e-7 + tolerance(32)));
    if (centred) {
      EXPECT_TRUE(close(dbias.get(), differences(b, objective), 1e-7 + tolerance(32)));
    }
    EXPECT_TRUE(close(dx.get(), differences(in, objective), 1e-6 + tolerance(32)));

    const Values once = dx.get(), before = dweight.get();
    if (centred)
      family().layer_norm_backward({.dx = dx,
                                    .dweight = dweight,
                                    .dy = dy,
                                    .x = x,
                                    .weight = weight,
                                    .mean = mean,
                                    .rstd = rstd,
                                    .add_dx = true,
                                    .add_dweight = true},
                                   stream());
    else
      family().rms_norm_backward({.dx = dx,
                                  .dweight = dweight,
                                  .dy = dy,
                                  .x = x,
                                  .weight = weight,
                                  .rstd = rstd,
                                  .add_dx = true,
                                  .add_dweight = true},
                                 stream());
    Values twice = before;
    for (double& value : twice) value *= 2;
    EXPECT_TRUE(close(dweight.get(), twice, tolerance(8)));
    Values doubled = once;
    for (double& value : doubled) value *= 2;
    EXPECT_TRUE(close(dx.get(), doubled, tolerance(8)));
  }
}

/// Layer norm, or RMS norm, of [rows, columns] and its gradients by formulas.
struct NormFormulas {
  Values y, dx, dweight, dbias;
  NormFormulas(std::size_t width, const Values& x, const Values& w, const Values& b,
               const Values& dy, bool centred)
      : y(x.size()), dx(x.size()), dweight(width), dbias(width) {
    const auto n = static_cast<double>(width);
    for (std::size_t start = 0; start < x.size(); start += width) {
      double mean = 0, squares = 0, slopes = 0, products = 0;
      for (std::size_t c = 0; centred && c < width; ++c) mean += x[start + c] / n;
      for (std::size_t c = 0; c < width; ++c) squares += std::pow(x[start + c] - mean, 2) / n;
      const double rstd = 1 / std::sqrt(squares + 1e-5);
      const auto normal = [&](std::size_t c) { return (x[start + c] - mean) * rstd; };
      for (std::size_t c = 0; c < width; ++c) {
        const double g = dy[start + c];
        y[start + c] = normal(c) * w[c] + (centred ? b[c] : 0.0);
        dweight[c] += g * normal(c);
        dbias[c] += g;
        if (centred) slopes += g * w[c] / n;
        products += g * w[c] * normal(c) / n;
      }
      for (std::size_t c = 0; c < width; ++c)
        dx[start + c] = rstd * (dy[start + c] * w[c] - slopes - normal(c) * products);
    }
  }
};

// Rows of a warp and of a block, that threads keep and that they cannot, in one part and in
// several.
TEST_P(NormContract, MatchFormulasAtAllWidths) {
  std::vector<DType> results{dtype()};
  if (dtype() == DType::f32) results = {DType::f32, DType::bf16, DType::f16};
  for (const auto& [n, width] :
       {std::pair<std::int64_t, std::int64_t>{90, 104}, {40, 776}, {3, 1500}, {2, 9600}})
    for (const DType result : results)
      for (const bool centred : {true, false}) {
        SCOPED_TRACE(::testing::Message() << n << " x " << width << " to " << result << centred);
        const auto x = array({n, width}).randomize(1, 1.0, 3.0),
                   dy = array(result, {n, width}).randomize(5);
        const auto weight = array({width}).randomize(2, 0.5, 1.5),
                   bias = array({width}).randomize(6);
        const auto y = array(result, {n, width}), dx = array({n, width}).randomize(3);
        const auto dweight = array({width}).randomize(4), dbias = array({width});
        const auto mean = statistics({n}), rstd = statistics({n});
        const Values dx_before = dx.get(), dweight_before = dweight.get();
        if (centred) {
          family().layer_norm(
              {.y = y, .mean = mean, .rstd = rstd, .x = x, .weight = weight, .bias = bias},
              stream());
          family().layer_norm_backward({.dx = dx,
                                        .dweight = dweight,
                                        .dbias = dbias,
                                        .dy = dy,
                                        .x = x,
                                        .weight = weight,
                                        .mean = mean,
                                        .rstd = rstd,
                                        .add_dx = true,
                                        .add_dweight = true},
                                       stream());
        } else {
          family().rms_norm({.y = y, .rstd = rstd, .x = x, .weight = weight}, stream());
          family().rms_norm_backward({.dx = dx,
                                      .dweight = dweight,
                                      .dy = dy,
                                      .x = x,
                                      .weight = weight,
                                      .rstd = rstd,
                                      .add_dx = true,
                                      .add_dweight = true},
                                     stream());
        }
        NormFormulas expected(static_cast<std::size_t>(width), x.get(), weight.get(), bias.get(),
                              dy.get(), centred);
        for (std::size_t i = 0; i < dx_before.size(); ++i) expected.dx[i] += dx_before[i];
        for (std::size_t i = 0; i < dweight_before.size(); ++i)
          expected.dweight[i] += dweight_before[i];
        EXPECT_TRUE(close(y.get(), expected.y, tolerance(32) + 2 * rounding(result)));
        EXPECT_TRUE(close(dx.get(), expected.dx, tolerance(64)));
        EXPECT_TRUE(close(dweight.get(), expected.dweight, tolerance(64)));
        if (!centred) continue;
        EXPECT_TRUE(close(dbias.get(), expected.dbias, tolerance(64)));
      }
}

TEST_P(NormContract, RowsMayHaveNoColumns) {
  const auto x = array({3, 0}), y = array({3, 0}), w = array({0}), dw = array({0}), db = array({0});
  const auto mean = statistics({3}), rstd = statistics({3});
  family().layer_norm({.y = y, .mean = mean, .rstd = rstd, .x = x, .weight = w, .bias = w},
                      stream());
  family().layer_norm_backward({.dx = y,
                                .dweight = dw,
                                .dbias = db,
                                .dy = x,
                                .x = x,
                                .weight = w,
                                .mean = mean,
                                .rstd = rstd},
                               stream());
  family().rms_norm({.y = y, .rstd = rstd, .x = x, .weight = w}, stream());
  family().rms_norm_backward({.dx = y, .dweight = dw, .dy = x, .x = x, .weight = w, .rstd = rstd},
                             stream());
  EXPECT_TRUE(dw.get().empty());
}

TEST_P(NormContract, GradientsDoNotDependOnThreads) {
  const std::int64_t many = 5000;
  const auto x = array({many, 64}).randomize(1), dy = array({many, 64}).randomize(2);
  const auto mean = statistics({many}).set(Values(many, 0.0));
  const auto rstd = statistics({many}).set(Values(many, 1.0));
  const auto run = [&](int threads) {
    const int before = num_threads();
    set_num_threads(threads);
    const auto dweight = array({64}), dbias = array({64});
    family().layer_norm_backward(
        {.dweight = dweight, .dbias = dbias, .dy = dy, .x = x, .mean = mean, .rstd = rstd},
        stream());
    set_num_threads(before);
    return std::pair(dweight.get(), dbias.get());
  };
  EXPECT_EQ(run(1), run(3));
}

// On a GPU the last block adds up what the others have left, of fewer blocks than it adds at once
// and of more. The driver's own stream has no counters: there they are cleared for the call.
TEST_P(NormContract, BackwardLeavesTheCountersOfItsStreamAtZero) {
  for (const std::int64_t n : {70, 1300}) {
    const std::int64_t width = 104;
    const auto x = array({n, width}).randomize(1), dy = array({n, width}).randomize(2);
    const auto y = array({n, width}), mean = statistics({n}), rstd = statistics({n});
    family().layer_norm({.y = y, .mean = mean, .rstd = rstd, .x = x}, stream());
    synchronize(stream());
    const auto backward = [&](StreamRef on) {
      const auto dx = array({n, width}), dweight = array({width}), dbias = array({width});
      synchronize(stream());  // the arrays are there
      family().layer_norm_backward({.dx = dx,
                                    .dweight = dweight,
                                    .dbias = dbias,
                                    .dy = dy,
                                    .x = x,
                                    .mean = mean,
                                    .rstd = rstd},
                                   on);
      synchronize(on);
      return std::tuple(dx.get(), dweight.get(), dbias.get());
    };
    const auto expected = backward({GetParam().device});
    for (int repetition = 0; repetition < 2; ++repetition) {
      EXPECT_EQ(backward(stream()), expected);
      EXPECT_TRUE(counters_are_zero());
    }
  }
}

/// Sums of the columns of [rows, width].
Values column_sums(const Values& in, std::int64_t width) {
  Values sums(static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < in.size(); ++i) sums[i % sums.size()] += in[i];
  return sums;
}

Values added(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// Of rows that a warp keeps, and a block, and of odd ones, whose by-products are computed apart; of
// summands of one tile and of several, with an end.
TEST_P(NormContract, ByproductsAreThoseOfTheArraysAndChangeNoOtherBit) {
  std::vector<DType> results = {dtype()};
  if (dtype() == DType::f32) results.insert(results.end(), {DType::bf16, DType::f16});
  for (const DType result : results)
    for (const auto& [n, width, summed] :
         {std::array<std::int64_t, 3>{130, 104, 40}, {70, 1000, 600}, {90, 61, 24}}) {
      const std::int64_t m = 300;
      const auto x = array({n, width}).randomize(1), weight = array({width}).randomize(2);
      const auto dy = array(result, {n, width}).randomize(3);
      const auto summand = array(result, {m, summed}).randomize(4);
      const auto y = array(result, {n, width});
      const auto mean = statistics({n}), rstd = statistics({n});
      family().layer_norm({.y = y, .mean = mean, .rstd = rstd, .x = x, .weight = weight}, stream());
      struct Results {
        Values dx, dweight, dbias, dx_sums, dx_totals, dx_copy, sums;
        bool operator==(const Results&) const = default;
      };
      const auto backward = [&](bool besides) {
        const auto dx = array({n, width}).randomize(5);
        const auto dweight = array({width}), dbias = array({width});
        const auto dx_sums = array({width}).randomize(6), sums = array({summed}).randomize(7);
        const auto dx_copy = array(result, {n, width}), dx_totals = statistics({width});
        kernels::NormByproducts byproducts;
        if (besides)
          byproducts = {.dx_sums = dx_sums,
                        .dx_totals = dx_totals,
                        .dx_copy = dx_copy,
                        .summand = summand,
                        .sums = sums,
                        .add_dx_sums = true,
                        .add_sums = true};
        if (besides && result == dtype()) byproducts.dx_copy = {};
        family().layer_norm_backward({.dx = dx,
                                      .dweight = dweight,
                                      .dbias = dbias,
                                      .dy = dy,
                                      .x = x,
                                      .weight = weight,
                                      .mean = mean,
                                      .rstd = rstd,
                                      .add_dx = true,
                                      .byproducts = byproducts},
                                     stream());
        return Results{dx.get(),
                       dweight.get(),
                       dbias.get(),
                       dx_sums.get(),
                       besides ? dx_totals.get() : Values(),
                       byproducts.dx_copy ? dx_copy.get() : Values(),
                       sums.get()};
      };
      const Results without = backward(false), with = backward(true);
      EXPECT_EQ(with.dx, without.dx);
      EXPECT_EQ(with.dweight, without.dweight);
      EXPECT_EQ(with.dbias, without.dbias);
      EXPECT_TRUE(close(with.dx_sums, added(without.dx_sums, column_sums(with.dx, width)),
                        tolerance(256) + rounding(dtype()) * 8));
      EXPECT_TRUE(close(with.dx_totals, column_sums(with.dx, width),
                        tolerance(256) + rounding(dtype()) * 8));
      EXPECT_TRUE(close(with.sums, added(without.sums, column_sums(summand.get(), summed)),
                        tolerance(256)));
      if (!with.dx_copy.empty()) {
        auto copy = array(result, {n, width});
        copy.set(with.dx);
        EXPECT_EQ(with.dx_copy, copy.get());
      }
      EXPECT_TRUE(counters_are_zero());
      EXPECT_EQ(backward(true), with);
    }
}

// A summand whose first columns are known to be its own, the next ones to sum to 0, and the last to
// what few rows with weights do.
TEST_P(NormContract, SumsOfASummandMayFollowFromLess) {
  const std::int64_t n = 70, width = 64, m = 90, k = 264, r = 11;
  const auto x = array({n, width}).randomize(1), dy = array({n, width}).randomize(2);
  const auto y = array({n, width}), few = array({r, k}).randomize(3);
  const auto mean = statistics({n}), rstd = statistics({n}), weights = statistics({r}).randomize(4);
  family().layer_norm({.y = y, .mean = mean, .rstd = rstd, .x = x}, stream());
  const Values random = array({m, k}).randomize(5).get(), terms = few.get();
  const Values factors = weights.get();
  Values all;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t c = 0; c < 3 * k; ++c) {
      const auto at = static_cast<std::size_t>(i * k + c % k);
      const double pair = (i % 2 ? -1 : 1) * random[static_cast<std::size_t>(i / 2 * k + c % k)];
      const double last = i < r ? terms[at] * factors[static_cast<std::size_t>(i)] : 0;
      all.push_back(c < k ? random[at] : c < 2 * k ? pair : last);
    }
  const auto summand = array({m, 3 * k}).set(all);
  ArrayView own = summand;
  own.shape[1] = k;
  const Values held = array({3 * k}).randomize(6).get();
  for (const bool adds : {false, true}) {
    const auto dweight = array({width}), dbias = array({width});
    const auto sums = array({3 * k}).set(held);
    family().layer_norm_backward(
        {.dweight = dweight,
         .dbias = dbias,
         .dy = dy,
         .x = x,
         .mean = mean,
         .rstd = rstd,
         .byproducts = {.summand = summand,
                        .sums = sums,
                        .parts = {{{.columns = k, .rows = own},
                                   {.columns = k},
                                   {.columns = k, .rows = few, .weights = weights}}},
                        .add_sums = adds}},
        stream());
    const Values found = column_sums(summand.get(), 3 * k);
    EXPECT_TRUE(close(sums.get(), adds ? added(held, found) : found,
                      tolerance(256) + rounding(dtype()) * 16));
    EXPECT_TRUE(counters_are_zero());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, NormContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
