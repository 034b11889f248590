#include "lockstep/autograd/ops/spatial.hpp"
#include "support/random_cases.hpp"

namespace lockstep::testing {
namespace {

/// The input positions of one window, along one dimension.
struct Window {
  std::int64_t begin, end;
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

  static ::testing::AssertionResult check_adaptive(RandomCase& c) {
    const Shape shape{c.integer(1, 3), c.extent(9, false), c.integer(1, 14), c.integer(1, 14)};
    const std::int64_t height = c.integer(1, shape[2]), width = c.integer(1, shape[3]);
    const RandomTensor x = c.image(shape, c.setting().dtype);
    const RandomTensor dy = c.tensor({shape[0], shape[1], height, width});
    const auto windows = [](std::int64_t in, std::int64_t out) {
      std::vector<Window> all;
      for (std::int64_t i = 0; i < out; ++i)
        all.push_back({i * in / out, ((i + 1) * in + out - 1) / out});
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

  static ::testing::AssertionResult check_average(RandomCase& c) {
    const std::int64_t kernel = c.integer(1, 4), stride = c.integer(1, 4);
    const std::int64_t padding = c.integer(0, kernel / 2);
    const auto extent = [&] { return c.integer(kernel, 13); };
    const Shape shape{c.integer(1, 3), c.extent(9, false), extent(), extent()};
    const bool counted = c.chance(0.5);
    c.note("kernel ", kernel, " stride ", stride, " padding ", padding, " counted ", counted);
    const auto windows = [&](std::int64_t in) {
      std::vector<Window> all;
      for (std::int64_t at = -padding; at + kernel <= in + padding; at += stride)
        all.push_back({std::max<std::int64_t>(at, 0), std::min(at + kernel, in)});
      return all;
    };
    const auto rows = windows(shape[2]), columns = windows(shape[3]);
    const RandomTensor x = c.image(shape, c.setting().dtype);
    const RandomTensor dy = c.tensor({shape[0], shape[1], static_cast<std::int64_t>(rows.size()),
                                      static_cast<std::int64_t>(columns.size())});
    const Means expected(shape, x.values, dy.values, rows, columns,
                         [&](std::size_t i, std::size_t j) {
                           const std::int64_t inside =
                               (rows[i].end - rows[i].begin) * (columns[j].end - columns[j].begin);
                           return static_cast<double>(counted ? kernel * kernel : inside);
                         });
    const Tensor input = leaf(x);
    const Tensor out = avg_pool2d(
        input,
        {.kernel = kernel, .stride = stride, .padding = padding, .count_include_pad = counted});
    return compare(c, input, out, dy, expected);
  }
};

TEST_P(RandomPooling, AveragesAsLoopsDo) { run_cases(80, check_average); }
TEST_P(RandomPooling, AveragesAdaptivelyAsLoopsDo) { run_cases(80, check_adaptive); }
TEST_P(RandomPooling, SlowAveragesAsLoopsDo) {
  run_cases(20000, check_average);
  run_cases(20000, check_adaptive);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomPooling,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
