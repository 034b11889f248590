#include "backend/rows.hpp"

#include "contract/backends.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::test {
namespace {

constexpr std::int64_t rows = 13, columns = 101;
constexpr auto at(std::int64_t row, std::int64_t column) {
  return static_cast<std::size_t>(row * columns + column);
}

class RowsContract : public ContractTest {
 protected:
  backend::Rows& family() { return *backend().rows; }
  DeviceArray statistics(const Shape& shape) const { return array(statistics_dtype(), shape); }

  static double lse(const Values& x, std::int64_t row) {
    double top = -INFINITY, sum = 0;
    for (int c = 0; c < columns; ++c) top = std::max(top, x[at(row, c)]);
    for (int c = 0; c < columns; ++c) sum += std::exp(x[at(row, c)] - top);
    return top + std::log(sum);
  }
};

TEST_P(RowsContract, SoftmaxMatchesFormulas) {
  const auto x = array({rows, columns}).randomize(1, -40, 40), y = array({rows, columns});
  const auto dy = array({rows, columns}).randomize(2), dx = array({rows, columns});
  for (const bool log : {false, true}) {
    family().softmax(y, x, log, stream());
    const Values in = x.get();
    Values expected(in.size());
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c) {
        const double value = in[at(r, c)] - lse(in, r);
        expected[at(r, c)] = log ? value : std::exp(value);
      }
    EXPECT_TRUE(close(y.get(), expected, tolerance(4)));

    family().softmax_backward(dx, dy, y, log, stream());
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

TEST_P(RowsContract, SoftmaxTakesMaskedAndNarrowRows) {
  const auto x = array({2, 3}).set({-INFINITY, 0, -INFINITY, 1000, 1000, -INFINITY});
  const auto y = array({2, 3});
  family().softmax(y, x, false, stream());
  EXPECT_TRUE(close(y.get(), {0, 1, 0, 0.5, 0.5, 0}, tolerance()));
}

/// The loss of row r: (1 - s) w_t (lse - x_t) + s / C sum_c w_c (lse - x_c).
double row_loss(const Values& x, std::int64_t r, std::int64_t target, const Values& weight,
                double smoothing, double lse) {
  double spread = 0;
  for (int c = 0; c < columns; ++c)
    spread += weight[static_cast<std::size_t>(c)] * (lse - x[at(r, c)]);
  return (1 - smoothing) * weight[static_cast<std::size_t>(target)] * (lse - x[at(r, target)]) +
         smoothing / columns * spread;
}

TEST_P(RowsContract, CrossEntropyMatchesFormulasAndDifferences) {
  const auto x = array({rows, columns}).randomize(1, -4, 4), dx = array({rows, columns});
  const auto weight = array({columns}).randomize(3, 0.5, 2.0);
  Values labels = random_values(rows, 5, 0, columns - 1);
  for (double& label : labels) label = std::floor(label);
  labels[4] = -100;
  const auto targets = array(DType::i64, {rows}).set(labels);
  const auto loss = statistics({rows}), kept = statistics({rows, 2}), counted = statistics({rows});
  const auto dloss = statistics({rows}).set(Values(rows, 0.5));
  for (const bool weighted : {false, true})
    for (const double smoothing : {0.0, 0.1}) {
      const ArrayView weights = weighted ? weight.view() : ArrayView{};
      const backend::CrossEntropyOptions options{.label_smoothing = smoothing};
      family().cross_entropy(loss, kept, counted, x, targets, weights, options, stream());
      family().cross_entropy_backward(dx, dloss, x, targets, weights, kept, options, stream());
      const Values in = x.get();
      const Values w = weighted ? weight.get() : Values(columns, 1.0);
      Values expected(rows), counts(rows), slope(in.size());
      for (int r = 0; r < rows; ++r) {
        if (r == 4) continue;
        const auto target = static_cast<std::int64_t>(labels[static_cast<std::size_t>(r)]);
        const auto row = static_cast<std::size_t>(r);
        expected[row] = row_loss(in, r, target, w, smoothing, lse(in, r));
        counts[row] = w[static_cast<std::size_t>(target)];
        for (int c = 0; c < columns; ++c) {
          Values up = in, down = in;
          up[at(r, c)] += 1e-5;
          down[at(r, c)] -= 1e-5;
          slope[at(r, c)] = 0.5 *
                            (row_loss(up, r, target, w, smoothing, lse(up, r)) -
                             row_loss(down, r, target, w, smoothing, lse(down, r))) /
                            2e-5;
        }
      }
      EXPECT_TRUE(close(loss.get(), expected, tolerance(4)));
      EXPECT_TRUE(close(counted.get(), counts, tolerance()));
      EXPECT_TRUE(close(dx.get(), slope, 1e-8 + tolerance(8)));
    }
}

TEST_P(RowsContract, CrossEntropyNamesABadTarget) {
  if (GetParam().device.is_cuda()) return;
  const auto x = array({2, 3}).randomize(1);
  const auto targets = array(DType::i64, {2}).set({1, 3});
  const auto loss = statistics({2}), kept = statistics({2, 2}), counted = statistics({2});
  EXPECT_THROW(family().cross_entropy(loss, kept, counted, x, targets, {}, {}, stream()),
               InvalidArgument);
}

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

TEST_P(RowsContract, NormsMatchFormulasAndDifferences) {
  const auto x = array({rows, columns}).randomize(1, 1.0, 3.0);
  const auto weight = array({columns}).randomize(2, 0.5, 1.5), bias = array({columns}).randomize(3);
  const auto dy = array({rows, columns}).randomize(4);
  for (const bool centred : {true, false}) {
    const auto y = array({rows, columns}), dx = array({rows, columns});
    const auto dweight = array({columns}), dbias = array({columns});
    const auto mean = statistics({rows}), rstd = statistics({rows});
    if (centred) {
      family().layer_norm(y, mean, rstd, x, weight, bias, 1e-5, stream());
      family().layer_norm_backward(dx, dweight, dbias, dy, x, weight, mean, rstd, false, stream());
    } else {
      family().rms_norm(y, rstd, x, weight, 1e-5, stream());
      family().rms_norm_backward(dx, dweight, dy, x, weight, rstd, false, stream());
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

    const Values before = dweight.get();
    if (centred)
      family().layer_norm_backward({}, dweight, {}, dy, x, weight, mean, rstd, true, stream());
    else
      family().rms_norm_backward({}, dweight, dy, x, weight, rstd, true, stream());
    Values twice = before;
    for (double& value : twice) value *= 2;
    EXPECT_TRUE(close(dweight.get(), twice, tolerance(8)));
  }
}

TEST_P(RowsContract, NormGradientsDoNotDependOnThreads) {
  const std::int64_t many = 5000;
  const auto x = array({many, 64}).randomize(1), dy = array({many, 64}).randomize(2);
  const auto mean = statistics({many}).set(Values(many, 0.0));
  const auto rstd = statistics({many}).set(Values(many, 1.0));
  const auto run = [&](int threads) {
    const int before = num_threads();
    set_num_threads(threads);
    const auto dweight = array({64}), dbias = array({64});
    family().layer_norm_backward({}, dweight, dbias, dy, x, {}, mean, rstd, false, stream());
    set_num_threads(before);
    return std::pair(dweight.get(), dbias.get());
  };
  EXPECT_EQ(run(1), run(3));
}

TEST_P(RowsContract, EmbeddingLooksUpAndSumsBack) {
  const auto table = array({5, 3}).randomize(1), out = array({4, 3}), dtable = array({5, 3});
  const auto index = array(DType::i64, {4}).set({2, 0, 2, 4});
  family().embedding(out, table, index, stream());
  const Values rows_of = table.get();
  Values expected;
  for (const std::size_t row : {2u, 0u, 2u, 4u})
    for (std::size_t c = 0; c < 3; ++c) expected.push_back(rows_of[row * 3 + c]);
  EXPECT_EQ(out.get(), expected);

  const auto dy = array({4, 3}).set({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  family().embedding_backward(dtable, dy, index, 4, false, stream());
  EXPECT_EQ(dtable.get(), (Values{4, 5, 6, 0, 0, 0, 8, 10, 12, 0, 0, 0, 0, 0, 0}));
  family().embedding_backward(dtable, dy, index, -1, true, stream());
  EXPECT_EQ(dtable.get(), (Values{8, 10, 12, 0, 0, 0, 16, 20, 24, 0, 0, 0, 10, 11, 12}));
  if (GetParam().device.is_cuda()) return;
  const auto bad = array(DType::i64, {4}).set({2, 0, 5, 4});
  EXPECT_THROW(family().embedding(out, table, bad, stream()), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RowsContract,
    ::testing::ValuesIn(targets({DType::f64, DType::f32, DType::bf16, DType::f16})), target_name);

}  // namespace
}  // namespace lockstep::test
