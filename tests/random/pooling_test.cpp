#include "lockstep/autograd/ops/spatial.hpp"
#include "support/random_cases.hpp"

namespace lockstep::testing {
namespace {

/// The input positions of one window, along one dimension.
struct Window {
  std::int64_t begin, end;
  std::int64_t padded;  ///< its extent with the padding that it covers
};

/// Means of windows and their gradients, by loops.
struct Means {
  Expected y, dx;

  /// @param rows, columns the windows. @param divisor of each window by its row and column.
  template <class Divisor>
  Means(const Shape& x_shape, const Values& x, const Values& dy, const std::vector<Window>& rows,
        const std::vector<Window>& columns, Divisor&& divisor)
      : y(static_cast<std::int64_t>(dy.size())), dx(numel(x_shape)) {
    std::int64_t out = 0;
    for (std::int64_t plane = 0; plane < x_shape[0] * x_shape[1]; ++plane)
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (std::size_t j = 0; j < columns.size(); ++j, ++out)
          for (std::int64_t h = rows[i].begin; h < rows[i].end; ++h)
            for (std::int64_t w = columns[j].begin; w < columns[j].end; ++w) {
              const std::int64_t in = (plane * x_shape[2] + h) * x_shape[3] + w;
              y.add(out, x[static_cast<std::size_t>(in)] / divisor(i, j));
              dx.add(in, dy[static_cast<std::size_t>(out)] / divisor(i, j));
            }
  }
};

class RandomPooling : public RandomCases {
 protected:
  static ::testing::AssertionResult compare(RandomCase& c, const Tensor& input, const Tensor& out,
                                            const RandomTensor& dy, const Means& expected) {
    const DType dtype = c.setting().dtype;
    if (auto r = agrees(out, dy.shape(), expected.y, sum_tolerance(dtype, 200)); !r)
      return r << ": the output";
    out.backward(dy);
    if (auto r = agrees(input.grad(), input.shape(), expected.dx, sum_tolerance(dtype, 200)); !r)
      return r << ": the gradient";
    return ::testing::AssertionSuccess();
  }

  /// Images of at least `least` pixels each way, or none at all.
  static Shape draw_shape(RandomCase& c, std::int64_t least, std::int64_t most) {
    return {c.chance(0.03) ? 0 : c.integer(1, 3), c.extent(9), c.integer(least, most),
            c.integer(least, most)};
  }

  static ::testing::AssertionResult check_adaptive(RandomCase& c) {
    Shape shape = draw_shape(c, 1, 14);
    const bool global = c.chance(0.3);  // often of channels that fill vectors
    if (global && c.chance(0.7)) shape[1] = 8 * c.integer(1, 3);
    const std::int64_t height = global ? 1 : c.integer(1, shape[2]);
    const std::int64_t width = global ? 1 : c.integer(1, shape[3]);
    const RandomTensor x = c.image(shape, c.setting().dtype);
    const RandomTensor dy = c.tensor({shape[0], shape[1], height, width});
    const auto windows = [](std::int64_t in, std::int64_t out) {
      std::vector<Window> all;
      for (std::int64_t i = 0; i < out; ++i)
        all.push_back({i * in / out, ((i + 1) * in + out - 1) / out, 0});
      return all;
    };
    const auto rows = windows(shape[2], height), columns = windows(shape[3], width);
    const Means expected(shape, x.values, dy.values, rows, columns,
                         [&](std::size_t i, std::size_t j) {
                           return static_cast<double>((rows[i].end - rows[i].begin) *
                                                      (columns[j].end - columns[j].begin));
                         });
    const Tensor input = leaf(x);
    return compare(c, input, adaptive_avg_pool2d(input, {height, width}), dy, expected);
  }

  /// A geometry, and the windows that it makes of an image.
  struct Windows {
    Pool2dOptions options;
    Shape shape;
    std::vector<Window> rows, columns;

    explicit Windows(RandomCase& c) {
      const std::int64_t kernel = c.integer(1, 4), stride = c.integer(1, 4);
      const std::int64_t padding = c.integer(0, kernel / 2);
      const bool partial = c.chance(0.5);
      options = {.kernel = kernel, .stride = stride, .padding = padding, .ceil_mode = partial};
      shape = draw_shape(c, std::max<std::int64_t>(kernel - 2 * padding, 1), 13);
      c.note("kernel ", kernel, " stride ", stride, " padding ", padding, partial ? " ceil" : "");
      const auto along = [&](std::int64_t in) {
        std::vector<Window> all;
        // The last one of ceil mode may lie partly behind the padding, but must not begin there.
        for (std::int64_t at = -padding;
             partial ? at + kernel < in + padding + stride && at < in : at + kernel <= in + padding;
             at += stride)
          all.push_back({std::max<std::int64_t>(at, 0), std::min(at + kernel, in),
                         std::min(at + kernel, in + padding) - at});
        return all;
      };
      rows = along(shape[2]);
      columns = along(shape[3]);
    }
    Shape result() const {
      return {shape[0], shape[1], static_cast<std::int64_t>(rows.size()),
              static_cast<std::int64_t>(columns.size())};
    }
  };

  static ::testing::AssertionResult check_average(RandomCase& c) {
    Windows windows(c);
    const auto& [options, shape, rows, columns] = windows;
    const bool counted = windows.options.count_include_pad = c.chance(0.5);
    c.note(counted ? "padding counts" : "");
    const RandomTensor x = c.image(shape, c.setting().dtype), dy = c.tensor(windows.result());
    const auto divisor = [&](std::size_t i, std::size_t j) {
      const Window &row = windows.rows[i], &column = windows.columns[j];
      return static_cast<double>(counted ? row.padded * column.padded
                                         : (row.end - row.begin) * (column.end - column.begin));
    };
    const Means expected(shape, x.values, dy.values, rows, columns, divisor);
    const Tensor input = leaf(x);
    return compare(c, input, avg_pool2d(input, options), dy, expected);
  }

  static ::testing::AssertionResult check_max(RandomCase& c) {
    const Windows windows(c);
    const auto& [options, shape, rows, columns] = windows;
    const RandomTensor x = c.image(shape, c.setting().dtype), dy = c.tensor(windows.result());
    Expected y(numel(windows.result())), dx(numel(shape));
    std::int64_t out = 0;
    for (std::int64_t plane = 0; plane < shape[0] * shape[1]; ++plane)
      for (const Window& row : rows)
        for (const Window& column : columns) {
          std::int64_t largest = -1;  // the first of equal ones
          for (std::int64_t h = row.begin; h < row.end; ++h)
            for (std::int64_t w = column.begin; w < column.end; ++w) {
              const std::int64_t in = (plane * shape[2] + h) * shape[3] + w;
              if (largest < 0 || x.values[static_cast<std::size_t>(in)] >
                                     x.values[static_cast<std::size_t>(largest)])
                largest = in;
            }
          y.values[static_cast<std::size_t>(out)] = x.values[static_cast<std::size_t>(largest)];
          dx.add(largest, dy.values[static_cast<std::size_t>(out++)]);
        }
    const Tensor input = leaf(x), output = max_pool2d(input, options);
    if (auto r = agrees(output, windows.result(), y, 0); !r) return r << ": the output";
    output.backward(dy);
    return agrees(input.grad(), shape, dx, sum_tolerance(c.setting().dtype, 16))
           << ": the gradient";
  }

  static ::testing::AssertionResult check_case(RandomCase& c) {
    return c.chance(0.5) ? check_average(c) : check_max(c);
  }
};

TEST_P(RandomPooling, AgreesWithLoops) { run_cases(160, check_case); }
TEST_P(RandomPooling, AveragesAdaptivelyAsLoopsDo) { run_cases(80, check_adaptive); }
TEST_P(RandomPooling, SlowAgreesWithLoops) {
  run_cases(40000, check_case);
  run_cases(20000, check_adaptive);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomPooling,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
