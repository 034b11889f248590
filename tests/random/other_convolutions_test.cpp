#include "lockstep/autograd/ops/spatial.hpp"
#include "random/naive.hpp"

// Transposed convolutions, and convolutions of sequences, on random shapes and memory layouts.

namespace lockstep::testing {
namespace {

/// What terms of products add up to, and what they were made of.
struct Sums {
  Expected y, dx, dw, db;
};

class RandomConvolutions : public RandomCases {
 protected:
  /// Compares all results of a convolution whose terms `for_each(visit)` names: visit(x, w, y).
  template <class Call, class Terms>
  static ::testing::AssertionResult compare(RandomCase& c, const RandomTensor& x,
                                            const RandomTensor& w, const Shape& shape, Call&& call,
                                            Terms&& for_each) {
    const std::int64_t channels = shape[1];
    const RandomTensor b = c.tensor({channels}), dy = c.tensor(shape);
    const bool biased = c.chance(0.5);
    c.note(biased ? "bias" : "no bias");
    Sums sums{Expected(numel(shape)), Expected(x.tensor.numel()), Expected(w.tensor.numel()),
              Expected(channels)};
    for_each([&](std::int64_t ix, std::int64_t iw, std::int64_t iy) {
      sums.y.add(iy, at(x.values, ix) * at(w.values, iw));
      sums.dx.add(ix, at(dy.values, iy) * at(w.values, iw));
      sums.dw.add(iw, at(dy.values, iy) * at(x.values, ix));
    });
    for (std::int64_t i = 0; i < numel(shape); ++i) {
      const std::int64_t channel = index_of(i, shape)[1];
      if (biased) sums.y.add(i, at(b.values, channel));
      sums.db.add(channel, at(dy.values, i));
    }
    const Tensor input = leaf(x), weight = leaf(w), bias = biased ? leaf(b) : Tensor();
    const Tensor out = call(input, weight, bias);
    const double allowed = 2 * sum_tolerance(c.setting().dtype, 400);
    if (auto r = agrees(out, shape, sums.y, allowed); !r) return r << ": the output";
    out.backward(dy);
    if (auto r = agrees(input.grad(), x.shape(), sums.dx, allowed); !r)
      return r << ": the input's gradient";
    if (auto r = agrees(weight.grad(), w.shape(), sums.dw, allowed); !r)
      return r << ": the weight's gradient";
    if (!biased) return ::testing::AssertionSuccess();
    return agrees(bias.grad(), {channels}, sums.db, allowed) << ": the bias's gradient";
  }

  static ::testing::AssertionResult check_transposed(RandomCase& c) {
    const auto both = [&](std::int64_t low, std::int64_t high) {
      const std::int64_t height = c.integer(low, high);
      return c.chance(0.6) ? Size2d(height) : Size2d(height, c.integer(low, high));
    };
    ConvTranspose2dOptions o{.stride = both(1, 3), .dilation = both(1, c.chance(0.7) ? 1 : 3)};
    o.groups = c.chance(0.7) ? 1 : c.integer(2, 3);
    const std::int64_t in = c.extent(o.groups > 1 ? 5 : 12, false);  // channels a group
    const std::int64_t out = c.extent(o.groups > 1 ? 5 : 12, false);
    const Size2d kernel = both(1, 4);
    const auto padded = [&](std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
      const std::int64_t extra = c.chance(0.5) ? 0 : c.integer(0, std::max(stride, dilation) - 1);
      // What is left of a single position is at least one.
      const std::int64_t most = (dilation * (taps - 1) + extra) / 2;
      return std::pair(c.integer(0, std::min<std::int64_t>(most, 2)), extra);
    };
    const auto [top, more_rows] = padded(kernel.height, o.stride.height, o.dilation.height);
    const auto [left, more_columns] = padded(kernel.width, o.stride.width, o.dilation.width);
    o.padding = {top, left};
    o.output_padding = {more_rows, more_columns};
    const Shape x_shape{c.chance(0.03) ? 0 : c.integer(1, 3), o.groups * in, c.integer(1, 6),
                        c.integer(1, 6)};
    const auto extent = [](std::int64_t from, std::int64_t taps, std::int64_t stride,
                           std::int64_t padding, std::int64_t more, std::int64_t dilation) {
      return (from - 1) * stride - 2 * padding + dilation * (taps - 1) + more + 1;
    };
    const Shape shape{
        x_shape[0], o.groups * out,
        extent(x_shape[2], kernel.height, o.stride.height, top, more_rows, o.dilation.height),
        extent(x_shape[3], kernel.width, o.stride.width, left, more_columns, o.dilation.width)};
    const Shape w_shape{o.groups * in, out, kernel.height, kernel.width};
    c.note("stride ", o.stride.height, ' ', o.stride.width, " padding ", top, ' ', left, " more ",
           more_rows, ' ', more_columns, " dilation ", o.dilation.height, ' ', o.dilation.width,
           " groups ", o.groups);
    const RandomTensor x = draw(c, x_shape), w = draw(c, w_shape);
    return compare(
        c, x, w, shape,
        [&](const Tensor& input, const Tensor& weight, const Tensor& bias) {
          if (is_of_sequences(input, weight, o)) return of_sequences(input, weight, bias, o);
          return conv_transpose2d(input, weight, bias, o);
        },
        [&](auto&& visit) {
          for (std::int64_t i = 0; i < numel(x_shape); ++i) {
            const Dims from = index_of(i, x_shape);
            for (std::int64_t tap = 0; tap < out * kernel.height * kernel.width; ++tap) {
              const Dims at = index_of(tap, {out, kernel.height, kernel.width});
              const Dims to{from[0], from[1] / in * out + at[0],
                            from[2] * o.stride.height + at[1] * o.dilation.height - top,
                            from[3] * o.stride.width + at[2] * o.dilation.width - left};
              if (to[2] < 0 || to[2] >= shape[2] || to[3] < 0 || to[3] >= shape[3]) continue;
              visit(i, position_of({from[1], at[0], at[1], at[2]}, w_shape),
                    position_of(to, shape));
            }
          }
        });
  }

  static ::testing::AssertionResult check_sequences(RandomCase& c) {
    Conv1dOptions o{.stride = c.integer(1, 3), .padding = c.integer(0, 2)};
    o.dilation = c.chance(0.7) ? 1 : c.integer(2, 3);
    o.groups = c.chance(0.7) ? 1 : c.integer(2, 3);
    const std::int64_t in = c.extent(9, false), out = c.extent(9, false), taps = c.integer(1, 4);
    const std::int64_t reach = o.dilation * (taps - 1) + 1;
    const Shape x_shape{c.integer(1, 3), o.groups * in,
                        std::max<std::int64_t>(reach - 2 * o.padding, 1) + c.integer(0, 9)};
    const Shape w_shape{o.groups * out, in, taps};
    const Shape shape{x_shape[0], o.groups * out,
                      (x_shape[2] + 2 * o.padding - reach) / o.stride + 1};
    c.note("stride ", o.stride, " padding ", o.padding, " dilation ", o.dilation, " groups ",
           o.groups);
    const RandomTensor x = c.tensor(x_shape), w = c.tensor(w_shape);
    return compare(
        c, x, w, shape,
        [&](const Tensor& input, const Tensor& weight, const Tensor& bias) {
          return conv1d(input, weight, bias, o);
        },
        [&](auto&& visit) {
          for (std::int64_t i = 0; i < numel(shape); ++i) {
            const Dims to = index_of(i, shape);
            for (std::int64_t tap = 0; tap < in * taps; ++tap) {
              const std::int64_t channel = tap / taps, k = tap % taps;
              const std::int64_t from = to[2] * o.stride + k * o.dilation - o.padding;
              if (from < 0 || from >= x_shape[2]) continue;
              visit(position_of({to[0], to[1] / out * in + channel, from}, x_shape),
                    position_of({to[1], channel, k}, w_shape), i);
            }
          }
        });
  }

 private:
  /// True if images are sequences, and their convolution is one of such.
  static bool is_of_sequences(const Tensor& x, const Tensor& weight,
                              const ConvTranspose2dOptions& o) {
    return x.size(2) == 1 && weight.size(2) == 1 && o.padding.height == 0 &&
           o.output_padding.height == 0;
  }
  static Tensor of_sequences(const Tensor& x, const Tensor& weight, const Tensor& bias,
                             const ConvTranspose2dOptions& o) {
    return conv_transpose1d(x.squeeze(2), weight.squeeze(2), bias,
                            {.stride = o.stride.width,
                             .padding = o.padding.width,
                             .output_padding = o.output_padding.width,
                             .dilation = o.dilation.width,
                             .groups = o.groups})
        .unsqueeze(2);
  }
  static RandomTensor draw(RandomCase& c, const Shape& shape) {
    return c.chance(0.8) ? c.image(shape, c.setting().dtype) : c.tensor(shape);
  }
};

TEST_P(RandomConvolutions, TransposedAgreeWithLoops) { run_cases(80, check_transposed); }
TEST_P(RandomConvolutions, OfSequencesAgreeWithLoops) { run_cases(60, check_sequences); }
TEST_P(RandomConvolutions, SlowAgreeWithLoops) {
  run_cases(15000, check_transposed);
  run_cases(15000, check_sequences);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomConvolutions,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
