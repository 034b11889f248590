#include "lockstep/autograd/ops/spatial.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "support/random_cases.hpp"

namespace lockstep::testing {
namespace {

struct Sizes {
  std::int64_t images, groups, in, out;  // channels a group
  Size2d image, kernel, result;
};

/// Draws a geometry that fits: narrow images and strides beyond the kernel among them.
Conv2dOptions draw(RandomCase& c, Sizes& s) {
  const auto both = [&](std::int64_t low, std::int64_t high) {
    const std::int64_t height = c.integer(low, high);
    return c.chance(0.7) ? Size2d(height) : Size2d(height, c.integer(low, high));
  };
  Conv2dOptions options{.stride = both(1, c.chance(0.5) ? 1 : 3),
                        .dilation = both(1, c.chance(0.85) ? 1 : 2)};
  s.images = c.chance(0.03) ? 0 : c.integer(1, 3);
  s.groups = options.groups = c.chance(0.75) ? 1 : c.integer(2, 4);
  s.in = c.extent(s.groups > 1 ? 6 : 20);
  s.out = c.extent(s.groups > 1 ? 6 : 20);
  s.kernel = c.chance(0.5) ? Size2d(c.choose<std::int64_t>({1, 3})) : both(1, 4);
  options.padding = c.chance(0.6) ? Size2d(s.kernel.height / 2, s.kernel.width / 2) : both(0, 2);
  const auto extent = [&](std::int64_t taps, std::int64_t dilation, std::int64_t padding) {
    const std::int64_t fits = dilation * (taps - 1) + 1 - 2 * padding;
    if (fits <= 0 && c.chance(0.05)) return std::int64_t{0};  // nothing but padding
    const std::int64_t least = std::max<std::int64_t>(fits, 1);
    return std::max(least, c.chance(0.5) ? c.integer(1, 4) : c.integer(1, 14));
  };
  s.image = {extent(s.kernel.height, options.dilation.height, options.padding.height),
             extent(s.kernel.width, options.dilation.width, options.padding.width)};
  const auto result = [](std::int64_t in, std::int64_t taps, std::int64_t stride,
                         std::int64_t padding, std::int64_t dilation) {
    return (in + 2 * padding - dilation * (taps - 1) - 1) / stride + 1;
  };
  s.result = {result(s.image.height, s.kernel.height, options.stride.height, options.padding.height,
                     options.dilation.height),
              result(s.image.width, s.kernel.width, options.stride.width, options.padding.width,
                     options.dilation.width)};
  c.note("stride ", options.stride.height, ' ', options.stride.width, " padding ",
         options.padding.height, ' ', options.padding.width, " dilation ", options.dilation.height,
         ' ', options.dilation.width, " groups ", s.groups);
  return options;
}

/// Calls `visit(x, weight, y, output channel)` with the indices of the factors of every term.
template <class Visit>
void for_each_term(const Sizes& s, const Conv2dOptions& options, Visit&& visit) {
  const auto [height, width] = s.image;
  for (std::int64_t n = 0; n < s.images; ++n)
    for (std::int64_t o = 0; o < s.groups * s.out; ++o)
      for (std::int64_t c = 0; c < s.in; ++c)
        for (std::int64_t i = 0; i < s.kernel.height; ++i)
          for (std::int64_t j = 0; j < s.kernel.width; ++j)
            for (std::int64_t h = 0; h < s.result.height; ++h)
              for (std::int64_t w = 0; w < s.result.width; ++w) {
                const std::int64_t row = h * options.stride.height + i * options.dilation.height -
                                         options.padding.height;
                const std::int64_t column =
                    w * options.stride.width + j * options.dilation.width - options.padding.width;
                if (row < 0 || row >= height || column < 0 || column >= width) continue;
                const std::int64_t channel = o / s.out * s.in + c;
                visit(((n * s.groups * s.in + channel) * height + row) * width + column,
                      ((o * s.in + c) * s.kernel.height + i) * s.kernel.width + j,
                      ((n * s.groups * s.out + o) * s.result.height + h) * s.result.width + w, o);
              }
}

class RandomConvolution : public RandomCases {
 protected:
  static ::testing::AssertionResult check_case(RandomCase& c) {
    Sizes s{};
    const Conv2dOptions options = draw(c, s);
    const DType dtype = c.setting().dtype;
    const Shape x_shape{s.images, s.groups * s.in, s.image.height, s.image.width};
    const Shape w_shape{s.groups * s.out, s.in, s.kernel.height, s.kernel.width};
    const Shape y_shape{s.images, s.groups * s.out, s.result.height, s.result.width};
    const RandomTensor x = c.chance(0.8) ? c.image(x_shape, dtype) : c.tensor(x_shape);
    const RandomTensor w = c.chance(0.8) ? c.image(w_shape, dtype) : c.tensor(w_shape);
    const RandomTensor b = c.tensor({w_shape[0]}), dy = c.tensor(y_shape);
    const bool biased = c.chance(0.5);
    c.note(biased ? "bias" : "no bias");
    const auto at = [](const RandomTensor& t, std::int64_t i) {
      return t.values[static_cast<std::size_t>(i)];
    };
    Expected y(numel(y_shape)), dx(numel(x_shape)), dw(numel(w_shape)), db(w_shape[0]);
    for_each_term(s, options, [&](std::int64_t ix, std::int64_t iw, std::int64_t iy, std::int64_t) {
      y.add(iy, at(x, ix) * at(w, iw));
      dx.add(ix, at(dy, iy) * at(w, iw));
      dw.add(iw, at(dy, iy) * at(x, ix));
    });
    const std::int64_t positions = s.result.height * s.result.width;
    for (std::int64_t i = 0; i < numel(y_shape); ++i) {
      const std::int64_t o = i / positions % w_shape[0];
      if (biased) y.add(i, at(b, o));
      db.add(o, at(dy, i));
    }
    const Tensor input = leaf(x), bias = biased ? leaf(b) : Tensor();
    // Weights that mixed precision converts have gradients in f32.
    const bool mixed = size_of(dtype) == 2 && c.chance(0.5);
    c.note(mixed ? "f32 weight" : "");
    const Tensor weight = mixed ? leaf(w).detach().to(DType::f32).set_requires_grad() : leaf(w);
    const Tensor out = [&] {
      const autograd::AutocastModeGuard guard(input.device().type, mixed ? dtype : DType::f32);
      return conv2d(input, weight, bias, options);
    }();
    const double taps = static_cast<double>(s.kernel.height * s.kernel.width);
    const auto tolerance = [&](double terms) { return sum_tolerance(dtype, terms); };
    if (auto r = agrees(out, y_shape, y, tolerance(taps * static_cast<double>(s.in))); !r)
      return r << ": the output";
    out.backward(dy);
    if (auto r = agrees(input.grad(), x_shape, dx, tolerance(taps * static_cast<double>(s.out)));
        !r)
      return r << ": the input's gradient";
    const auto all = static_cast<double>(s.images * positions);
    // Those in f32 may have been computed in the dtype.
    if (auto r = agrees(weight.grad().to(dtype), w_shape, dw, tolerance(all)); !r)
      return r << ": the weight's gradient";
    if (biased)
      if (auto r = agrees(bias.grad(), {w_shape[0]}, db, tolerance(all)); !r)
        return r << ": the bias's gradient";
    return ::testing::AssertionSuccess();
  }
};

TEST_P(RandomConvolution, AgreesWithLoops) { run_cases(100, check_case); }
TEST_P(RandomConvolution, SlowAgreesWithLoops) { run_cases(20000, check_case); }

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomConvolution,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
