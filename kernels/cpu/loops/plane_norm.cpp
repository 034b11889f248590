#include "cpu/loops/fill.hpp"
#include "functional/batch_norm.hpp"

/// @file
/// Batch norm over blocks of one channel: rows of images, whose columns are positions.

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

using functional::for_each_pack;
using functional::LaneFold;
using functional::load;
using functional::Moments;
using functional::Plus;
using functional::SoloGroup;
using functional::store;

/// The channel's value in a vector, in the accumulation type.
template <class T>
AccumulateType<T> value(const void* values) {
  return *static_cast<const AccumulateType<T>*>(values);
}

template <class T>
T* row_of(char* array, std::int64_t stride, std::int64_t row) {
  return reinterpret_cast<T*>(array) + row * stride;
}

/// Sums two terms of all elements: `terms(row, column, lanes, first, second)` makes packs of them.
template <class A, class Terms>
LOCKSTEP_ALWAYS_INLINE functional::NormSums<A> sum_terms(const ChannelBlock& block,
                                                         const Terms& terms) {
  LaneFold<A, SoloGroup::width> first(0), second(0);
  for (std::int64_t row = 0; row < block.rows; ++row)
    for_each_pack(SoloGroup{}, block.columns, [&](std::int64_t c, auto lanes) {
      functional::Pack<A, lanes.value> a, b;
      terms(row, c, a, b);
      first.take(a, Plus{});
      second.take(b, Plus{});
    });
  return {first.total(Plus{}), second.total(Plus{})};
}

/// As exact as sums in double: of deviations from the block's own mean.
template <class T>
void moments(const ChannelBlock& block, double* mean, double* squares, double count) {
  using A = AccumulateType<T>;
  const auto elements = static_cast<double>(block.rows * block.columns);
  LaneFold<A, SoloGroup::width> total(0);
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const T* const x = row_of<T>(block.x, block.x_stride, row);
    for_each_pack(SoloGroup{}, block.columns, [&](std::int64_t c, auto lanes) {
      total.take(load<A, lanes.value>(x + c), Plus{});
    });
  }
  const A centre = total.total(Plus{}) / static_cast<A>(elements);
  const auto sums = sum_terms<A>(block, [&](std::int64_t row, std::int64_t c, auto& a, auto& b) {
    constexpr int lanes = sizeof(a) / sizeof(A);
    a = load<A, lanes>(row_of<T>(block.x, block.x_stride, row) + c);
    for (int j = 0; j < lanes; ++j) a[j] -= centre;
    for (int j = 0; j < lanes; ++j) b[j] = a[j] * a[j];
  });
  const double off = static_cast<double>(sums.plain) / elements;
  const Moments<double> all =
      Moments<double>{count, *mean, *squares} +
      Moments<double>{elements, static_cast<double>(centre) + off,
                      static_cast<double>(sums.product) - off * off * elements};
  *mean = all.mean;
  *squares = all.squares;
}

template <class T, bool adds, bool relu>
void normalise_as(const ChannelBlock& block, const ChannelVectors& vectors) {
  using A = AccumulateType<T>;
  const A mean = value<T>(vectors.mean), scale = value<T>(vectors.scale),
          bias = value<T>(vectors.bias);
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const T* const x = row_of<T>(block.x, block.x_stride, row);
    T* const out = row_of<T>(block.out, block.out_stride, row);
    for_each_pack(SoloGroup{}, block.columns, [&](std::int64_t c, auto lanes) {
      auto z = load<A, lanes.value>(x + c);
      for (int j = 0; j < lanes.value; ++j) z[j] = functional::batch_norm(z[j], mean, scale, bias);
      if constexpr (adds) {
        const auto residual =
            load<A, lanes.value>(row_of<T>(block.side, block.side_stride, row) + c);
        for (int j = 0; j < lanes.value; ++j) z[j] += residual[j];
      }
      if constexpr (relu)
        for (int j = 0; j < lanes.value; ++j) z[j] = functional::batch_norm_relu(z[j]);
      store(out + c, z);
    });
  }
}

template <class T>
void normalise(const ChannelBlock& block, const ChannelVectors& vectors, bool relu) {
  if (block.side)
    return relu ? normalise_as<T, true, true>(block, vectors)
                : normalise_as<T, true, false>(block, vectors);
  return relu ? normalise_as<T, false, true>(block, vectors)
              : normalise_as<T, false, false>(block, vectors);
}

template <class T, bool relu>
void gradient_sums_as(const ChannelBlock& block, const ChannelVectors& vectors, double* dy_sum,
                      double* product_sum) {
  using A = AccumulateType<T>;
  const A mean = value<T>(vectors.mean), rstd = value<T>(vectors.rstd);
  const auto sums =
      sum_terms<A>(block, [&](std::int64_t row, std::int64_t c, auto& plain, auto& product) {
        constexpr int lanes = sizeof(plain) / sizeof(A);
        const auto x = load<A, lanes>(row_of<T>(block.x, block.x_stride, row) + c);
        plain = load<A, lanes>(row_of<T>(block.dy, block.dy_stride, row) + c);
        if constexpr (relu) {
          const auto y = load<A, lanes>(row_of<T>(block.side, block.side_stride, row) + c);
          for (int j = 0; j < lanes; ++j)
            plain[j] = functional::batch_norm_relu_gradient(plain[j], y[j]);
          store(row_of<T>(block.out, block.out_stride, row) + c, plain);
        }
        for (int j = 0; j < lanes; ++j)
          product[j] = functional::batch_norm_terms(plain[j], x[j], mean).product;
      });
  *dy_sum += static_cast<double>(sums.plain);
  *product_sum += static_cast<double>(sums.product * rstd);
}

template <class T>
void gradient_sums(const ChannelBlock& block, const ChannelVectors& vectors, double* dy_sum,
                   double* product_sum) {
  const auto sum = block.side ? gradient_sums_as<T, true> : gradient_sums_as<T, false>;
  sum(block, vectors, dy_sum, product_sum);
}

template <class T>
void input_gradient(const ChannelBlock& block, const ChannelVectors& vectors) {
  using A = AccumulateType<T>;
  const auto gradient = functional::BatchNormGradient<A>::of(
      {value<T>(vectors.mean), value<T>(vectors.rstd)}, value<T>(vectors.weight),
      {value<T>(vectors.dy_sum), value<T>(vectors.product_sum)},
      static_cast<A>(vectors.inverse_count));
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const T* const x = row_of<T>(block.x, block.x_stride, row);
    const T* const dy = row_of<T>(block.dy, block.dy_stride, row);
    T* const out = row_of<T>(block.out, block.out_stride, row);
    for_each_pack(SoloGroup{}, block.columns, [&](std::int64_t c, auto lanes) {
      const auto input = load<A, lanes.value>(x + c);
      auto result = load<A, lanes.value>(dy + c);
      for (int j = 0; j < lanes.value; ++j) result[j] = gradient(result[j], input[j]);
      store(out + c, result);
    });
  }
}

template <class T>
void add_dtype(Loops& loops) {
  loops.planes[static_cast<std::size_t>(dtype_of<T>)] = {.moments = moments<T>,
                                                         .normalise = normalise<T>,
                                                         .gradient_sums = gradient_sums<T>,
                                                         .input_gradient = input_gradient<T>};
}

}  // namespace

void fill_plane_norm(Loops& loops) {
  add_dtype<double>(loops);
  add_dtype<float>(loops);
  add_dtype<BFloat16>(loops);
  add_dtype<Half>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
