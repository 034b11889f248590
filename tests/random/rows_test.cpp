#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "random/naive.hpp"

// Softmax, cross-entropy and norms on random shapes and memory layouts, against formulas in double.

namespace lockstep::testing {
namespace {

using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// What the values lie above the largest: softmax does not see what they have in common.
Values lowered(Values x) {
  double largest = -INFINITY;
  for (const double value : x) largest = std::max(largest, value);
  for (double& value : x) value -= largest;
  return x;
}

double log_sum_exp(const Values& x) {
  double sum = 0;
  for (const double value : x) sum += std::exp(value);
  return std::log(sum);
}

/// Errors allowed to a result that is computed from terms of a magnitude.
void put(Expected& expected, std::int64_t at, double value, double magnitude) {
  expected.values[static_cast<std::size_t>(at)] = value;
  expected.magnitudes[static_cast<std::size_t>(at)] = magnitude;
}

class RandomRows : public RandomCases {
 protected:
  static double allowed(const RandomCase& c, std::int64_t columns) {
    return 8 * sum_tolerance(c.setting().dtype, static_cast<double>(columns));
  }
  /// A common offset, which f32 and f64 have the digits for.
  static Range logits(RandomCase& c) {
    const double offset = is_16_bit(c.setting().dtype) ? 0 : c.choose({0.0, 1000.0, -1000.0});
    return {offset - 5, offset + 5};
  }

  static AssertionResult check_softmax(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(1, 4)), 60, 2000);
    const auto d = static_cast<int>(c.integer(0, shape.size() - 1));
    const bool log = c.chance(0.5);
    c.note(log ? "log_softmax" : "softmax", " along ", d);
    const RandomTensor x = c.tensor(shape, logits(c)), dy = c.tensor(shape);
    Expected y(numel(shape)), dx(numel(shape));
    Shape lines = shape;
    lines[d] = 1;
    for (std::int64_t line = 0; line < numel(lines) && shape[d] > 0; ++line) {
      std::vector<std::int64_t> positions;
      Values values;
      double pulled = 0, pull = 0;
      Dims index = index_of(line, lines);
      for (index[d] = 0; index[d] < shape[d]; ++index[d]) {
        positions.push_back(position_of(index, shape));
        values.push_back(at(x.values, positions.back()));
      }
      values = lowered(std::move(values));
      const double lse = log_sum_exp(values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double term = at(dy.values, positions[i]) * (log ? 1 : std::exp(values[i] - lse));
        pulled += term, pull += std::abs(term);
      }
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double p = std::exp(values[i] - lse), g = at(dy.values, positions[i]);
        put(y, positions[i], log ? values[i] - lse : p, log ? 1 + std::abs(values[i] - lse) : p);
        put(dx, positions[i], log ? g - p * pulled : p * (g - pulled),
            // Backward sees the rounded result, whose logarithm may be several ulps of 1 off.
            log ? std::abs(g) + p * pull * 4 * (1 - std::log(p)) : p * (std::abs(g) + pull));
      }
    }
    const Tensor input = leaf(x), output = log ? log_softmax(input, d) : softmax(input, d);
    if (auto r = agrees(output, shape, y, allowed(c, shape[d])); !r) return r;
    output.backward(dy);
    return agrees(input.grad(), shape, dx, allowed(c, shape[d])) << ": the gradient";
  }

  /// One row's loss and gradient, for the weight of the row.
  struct RowLoss {
    double loss = 0, weight = 0;
    Values gradient;
  };
  static RowLoss row_loss(const Values& x, std::int64_t target, const Values& weight, double s) {
    const double lse = log_sum_exp(x), classes = static_cast<double>(x.size());
    const double own = at(weight, target);
    RowLoss row{(1 - s) * own * (lse - at(x, target)), own, Values(x.size())};
    double total = 0;
    for (const double w : weight) total += w;
    for (std::size_t i = 0; i < x.size(); ++i) {
      row.loss += s / classes * weight[i] * (lse - x[i]);
      row.gradient[i] = std::exp(x[i] - lse) * ((1 - s) * own + s / classes * total) -
                        s / classes * weight[i] -
                        (static_cast<std::int64_t>(i) == target ? (1 - s) * own : 0);
    }
    return row;
  }

  static AssertionResult check_cross_entropy(RandomCase& c) {
    Shape shape = c.shape(static_cast<int>(c.integer(2, 4)), 40, 1000);
    shape[1] = c.extent(40, false);
    Shape lines = shape, of_targets = shape;
    lines[1] = 1;
    of_targets.erase(1);
    const double smoothing = c.chance(0.5) ? 0 : 0.125;
    const bool weighted = c.chance(0.5);
    const auto reduction = c.choose({Reduction::mean, Reduction::sum, Reduction::none});
    c.note("cross_entropy smoothing ", smoothing, weighted ? " weighted" : "", " reduction ",
           static_cast<int>(reduction));
    const RandomTensor x = c.tensor(shape, logits(c));
    const RandomTensor weight = c.tensor({shape[1]}, {0.5, 2});
    // Target 0 may stand for rows that are ignored.
    const std::int64_t ignored = c.chance(0.5) ? 0 : -100;
    const RandomTensor targets =
        c.tensor(of_targets, DType::i64, {0, static_cast<double>(shape[1])});
    const Values ones(static_cast<std::size_t>(shape[1]), 1.0);
    std::vector<RowLoss> rows;
    double loss = 0, counted = 0;
    for (std::int64_t line = 0; line < numel(lines); ++line) {
      Dims index = index_of(line, lines);
      Values values;
      for (index[1] = 0; index[1] < shape[1]; ++index[1])
        values.push_back(at(x.values, position_of(index, shape)));
      const auto target = static_cast<std::int64_t>(at(targets.values, line));
      rows.push_back(target == ignored ? RowLoss{0, 0, Values(values.size())}
                                       : row_loss(lowered(values), target,
                                                  weighted ? weight.values : ones, smoothing));
      loss += rows.back().loss, counted += rows.back().weight;
    }
    CrossEntropyOptions options{.ignore_index = ignored, .label_smoothing = smoothing};
    options.reduction = reduction;
    if (weighted) options.weight = weight;
    const Tensor input = leaf(x), output = cross_entropy(input, targets, options);
    const bool each = reduction == Reduction::none;
    Expected y(each ? numel(of_targets) : 1), dx(numel(shape));
    const double divisor = reduction == Reduction::mean ? counted : 1;
    if (each)
      for (std::size_t i = 0; i < rows.size(); ++i)
        put(y, static_cast<std::int64_t>(i), rows[i].loss, 4 * (1 + rows[i].loss));
    else
      put(y, 0, loss / divisor, 4 * (1 + loss / divisor));
    // Losses are of the statistics dtype.
    if (auto r = agrees(output, each ? of_targets : Shape{}, y, allowed(c, numel(shape))); !r)
      return r;
    if (counted == 0) return AssertionSuccess();
    const RandomTensor dy = c.tensor(output.shape(), output.dtype());
    output.backward(dy);
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      Dims index = index_of(i, shape);
      const std::int64_t column = index[1];
      index[1] = 0;
      const std::int64_t line = position_of(index, lines);
      const double factor = at(dy.values, each ? line : 0) / divisor;
      put(dx, i, factor * at(rows[static_cast<std::size_t>(line)].gradient, column),
          4 * std::abs(factor));
    }
    return agrees(input.grad(), shape, dx, allowed(c, shape[1])) << ": the gradient";
  }

  static AssertionResult check_linear_cross_entropy(RandomCase& c) {
    const std::int64_t classes = c.extent(40, false), in = c.extent(8, false);
    const Shape lines = c.shape(static_cast<int>(c.integer(0, 2)), 12, 40);
    Shape shape = lines;
    shape.push_back(in);
    const std::int64_t rows = numel(lines);
    const auto reduction = c.choose({Reduction::mean, Reduction::sum, Reduction::none});
    const bool biased = c.chance(0.5);
    LinearCrossEntropyOptions options{.ignore_index = c.chance(0.5) ? 0 : -100,
                                      .label_smoothing = c.chance(0.5) ? 0 : 0.125,
                                      .reduction = reduction,
                                      .chunk_rows = c.integer(0, 5)};
    c.note("linear_cross_entropy smoothing ", options.label_smoothing, " reduction ",
           static_cast<int>(reduction), " chunks of ", options.chunk_rows, biased ? " biased" : "");
    const RandomTensor x = c.tensor(shape), w = c.tensor({classes, in}), b = c.tensor({classes});
    const RandomTensor targets = c.tensor(lines, DType::i64, {0, static_cast<double>(classes)});
    const Tensor input = leaf(x), weight = leaf(w), bias = biased ? leaf(b) : Tensor();
    options.bias = bias;
    const Tensor output = linear_cross_entropy(input, weight, targets, options);
    std::vector<RowLoss> each;
    double loss = 0, counted = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      Values logits(static_cast<std::size_t>(classes));
      for (std::int64_t k = 0; k < classes; ++k) {
        double& logit = logits[static_cast<std::size_t>(k)] = biased ? at(b.values, k) : 0;
        for (std::int64_t i = 0; i < in; ++i)
          logit += at(x.values, row * in + i) * at(w.values, k * in + i);
      }
      const auto target = static_cast<std::int64_t>(at(targets.values, row));
      each.push_back(target == options.ignore_index
                         ? RowLoss{0, 0, Values(logits.size())}
                         : row_loss(lowered(logits), target, Values(logits.size(), 1.0),
                                    options.label_smoothing));
      loss += each.back().loss, counted += each.back().weight;
    }
    const bool of_rows = reduction == Reduction::none;
    const double divisor = reduction == Reduction::mean ? counted : 1;
    // Rounding of a logit, which is below in + 1, is an error of the loss.
    const double size = 2 * static_cast<double>(in + 1);
    Expected y(of_rows ? rows : 1);
    if (of_rows)
      for (std::size_t i = 0; i < each.size(); ++i)
        put(y, static_cast<std::int64_t>(i), each[i].loss, size + each[i].loss);
    else
      put(y, 0, loss / divisor, (size * counted + loss) / divisor);
    const double tolerance = allowed(c, std::max(rows, classes));
    if (counted > 0)
      if (auto r = agrees(output, of_rows ? lines : Shape{}, y, tolerance); !r) return r;
    const RandomTensor dy = c.tensor(output.shape(), output.dtype());
    output.backward(dy);
    Expected dx(rows * in), dw(classes * in), db(classes);
    for (std::int64_t row = 0; row < rows; ++row) {
      const double factor = counted > 0 ? at(dy.values, of_rows ? row : 0) / divisor : 0;
      for (std::int64_t k = 0; k < classes; ++k) {
        const double slope = factor * at(each[static_cast<std::size_t>(row)].gradient, k);
        const auto add = [&](Expected& to, std::int64_t i, double other) {
          to.values[static_cast<std::size_t>(i)] += slope * other;
          to.magnitudes[static_cast<std::size_t>(i)] +=
              (std::abs(slope) + std::abs(factor) / static_cast<double>(classes)) * size;
        };
        add(db, k, 1);
        for (std::int64_t i = 0; i < in; ++i) {
          add(dx, row * in + i, at(w.values, k * in + i));
          add(dw, k * in + i, at(x.values, row * in + i));
        }
      }
    }
    if (auto r = agrees(input.grad(), shape, dx, tolerance); !r) return r << ": the gradient";
    if (auto r = agrees(weight.grad(), {classes, in}, dw, tolerance); !r)
      return r << ": the weight's gradient";
    if (biased)
      if (auto r = agrees(bias.grad(), {classes}, db, tolerance); !r)
        return r << ": the bias's gradient";
    return AssertionSuccess();
  }

  /// Gradients of a norm, in terms of x-hat = (x - mean) / deviation.
  static AssertionResult check_norm(RandomCase& c) {
    const Shape shape = c.shape(static_cast<int>(c.integer(1, 3)), 60, 1500);
    const std::int64_t columns = shape.back();
    if (columns == 0) return AssertionSuccess();
    const std::int64_t rows = numel(shape) / columns;
    const bool centred = c.chance(0.5), scaled = c.chance(0.7);
    const bool shifted = centred && scaled && c.chance(0.7);
    constexpr double eps = 1e-3;
    c.note(centred ? "layer_norm" : "rms_norm", scaled ? " weight" : "", shifted ? " bias" : "");
    const RandomTensor x = c.tensor(shape, {-1, 2}), dy = c.tensor(shape);
    const RandomTensor w = c.tensor({columns}, {0.5, 2}), b = c.tensor({columns});
    Expected y(numel(shape)), dx(numel(shape)), dw(columns), db(columns);
    const auto n = static_cast<double>(columns);
    for (std::int64_t row = 0; row < rows; ++row) {
      double mean = 0, variance = 0, pull = 0, slope = 0, size = 0;
      for (std::int64_t i = 0; i < columns && centred; ++i)
        mean += at(x.values, row * columns + i) / n;
      for (std::int64_t i = 0; i < columns; ++i)
        variance += std::pow(at(x.values, row * columns + i) - mean, 2) / n;
      const double deviation = std::sqrt(variance + eps);
      const auto hat = [&](std::int64_t i) {
        return (at(x.values, row * columns + i) - mean) / deviation;
      };
      const auto pushed = [&](std::int64_t i) {
        return at(dy.values, row * columns + i) * (scaled ? at(w.values, i) : 1);
      };
      for (std::int64_t i = 0; i < columns; ++i) {
        if (centred) pull += pushed(i) / n;
        slope += pushed(i) * hat(i) / n;
        size += std::abs(pushed(i)) * (1 + std::abs(hat(i))) / n;
      }
      for (std::int64_t i = 0; i < columns; ++i) {
        const double value = hat(i) * (scaled ? at(w.values, i) : 1);
        const double term = shifted ? at(b.values, i) : 0, off = 2 / deviation;
        put(y, row * columns + i, value + term, 2 * off + std::abs(value) + std::abs(term));
        put(dx, row * columns + i, (pushed(i) - pull - hat(i) * slope) / deviation,
            (std::abs(pushed(i)) + size * (1 + std::abs(hat(i)))) * off * (1 + off));
        dw.add(i, at(dy.values, row * columns + i) * hat(i));
        dw.magnitudes[static_cast<std::size_t>(i)] += off * off;
        db.add(i, at(dy.values, row * columns + i));
      }
    }
    const Tensor input = leaf(x), weight = scaled ? leaf(w) : Tensor(),
                 bias = shifted ? leaf(b) : Tensor();
    const Tensor output = centred ? layer_norm(input, {columns}, weight, bias, eps)
                                  : rms_norm(input, {columns}, weight, eps);
    if (auto r = agrees(output, shape, y, allowed(c, columns)); !r) return r;
    output.backward(dy);
    if (auto r = agrees(input.grad(), shape, dx, allowed(c, columns)); !r)
      return r << ": the gradient";
    if (scaled)
      if (auto r = agrees(weight.grad(), {columns}, dw, allowed(c, rows + columns)); !r)
        return r << ": the weight's gradient";
    if (shifted)
      if (auto r = agrees(bias.grad(), {columns}, db, allowed(c, rows)); !r)
        return r << ": the bias's gradient";
    return AssertionSuccess();
  }

  static AssertionResult check_case(RandomCase& c) {
    switch (c.integer(0, 3)) {
      case 0: return check_softmax(c);
      case 1: return check_cross_entropy(c);
      case 2: return check_linear_cross_entropy(c);
      default: return check_norm(c);
    }
  }
};

TEST_P(RandomRows, AgreesWithFormulas) { run_cases(250, check_case); }
TEST_P(RandomRows, SlowAgreesWithFormulas) { run_cases(25000, check_case); }

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomRows,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
