#include "arguments/convolution.hpp"

#include <algorithm>

#include "arguments/gemm.hpp"
#include "cpu/im2col.hpp"
#include "cpu/image.hpp"
#include "cpu/scratch.hpp"
#include "cpu/typed_row.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

using kernels::ConvGeometry;
using kernels::Epilogue;
using kernels::GemmArguments;

std::int64_t out_extent(std::int64_t in, std::int64_t kernel, const ConvGeometry& geometry,
                        std::size_t d) {
  const std::int64_t reach = geometry.dilation[d] * (kernel - 1) + 1;
  return (in + 2 * geometry.padding[d] - reach) / geometry.stride[d] + 1;
}

void check(const ArrayView& y, const ArrayView& x, const ArrayView& w,
           const ConvGeometry& geometry) {
  LOCKSTEP_CHECK(x.rank() == 4 && w.rank() == 4 && y.rank() == 4, InvalidArgument,
                 "convolution: images and weights have 4 dimensions, got ", x.shape, ", ", w.shape,
                 " and ", y.shape);
  const std::int64_t groups = geometry.groups;
  LOCKSTEP_CHECK(groups >= 1 && x.shape[1] == groups * w.shape[1] && w.shape[0] % groups == 0,
                 InvalidArgument, "convolution: input ", x.shape, " and weight ", w.shape,
                 " do not fit ", groups, " groups");
  const Shape expected{x.shape[0], w.shape[0], out_extent(x.shape[2], w.shape[2], geometry, 0),
                       out_extent(x.shape[3], w.shape[3], geometry, 1)};
  LOCKSTEP_CHECK(y.shape == expected, InvalidArgument, "convolution: output has shape ", y.shape,
                 ", expected ", expected);
  LOCKSTEP_CHECK(x.dtype == w.dtype, InvalidArgument, "convolution: input is ", x.dtype,
                 " and weight is ", w.dtype);
}

/// The products of one call, image by image and group by group.
class Products {
 public:
  Products(const ArrayView& y, const ArrayView& x, const ArrayView& weight,
           const ConvGeometry& geometry)
      : patches_{x, weight, geometry, y.shape[2], y.shape[3]},
        planes_(y),
        y_(y),
        out_channels_(weight.shape[0] / geometry.groups) {
    check(y, x, weight, geometry);
  }

  const Patches& patches() const { return patches_; }
  std::int64_t out_channels() const { return out_channels_; }

  /// A [1, rows, columns] view of dense memory.
  static ArrayView matrix(void* data, DType dtype, std::int64_t rows, std::int64_t columns) {
    return {data, dtype, {1, rows, columns}, {rows * columns, columns, 1}};
  }
  /// Weights of a group as [1, output channels, taps].
  ArrayView weights(std::int64_t group) const {
    const ArrayView& w = patches_.weight;
    const auto offset =
        static_cast<std::size_t>(group * out_channels_ * patches_.rows()) * size_of(w.dtype);
    return matrix(w.as<char>() + offset, w.dtype, out_channels_, patches_.rows());
  }
  /// One image and group of y as [1, output channels, positions].
  ArrayView output(std::int64_t n, std::int64_t group) const {
    const auto offset =
        planes_.offset(n, group * out_channels_) * static_cast<std::int64_t>(size_of(y_.dtype));
    return {y_.as<char>() + offset,
            y_.dtype,
            {1, out_channels_, planes_.positions},
            {0, planes_.channel_stride, planes_.position_stride}};
  }

 private:
  Patches patches_;
  Planes planes_;
  ArrayView y_;
  std::int64_t out_channels_;
};

ArrayView transposed(const ArrayView& view) {
  return {view.data,
          view.dtype,
          {view.shape[0], view.shape[2], view.shape[1]},
          {view.strides[0], view.strides[2], view.strides[1]}};
}

ArrayView slice(const ArrayView& view, std::int64_t begin, std::int64_t count) {
  if (!view) return {};
  const auto offset = begin * view.strides[0] * static_cast<std::int64_t>(size_of(view.dtype));
  return {view.as<char>() + offset, view.dtype, {count}, view.strides};
}

template <class T>
T* scratch(std::int64_t count) {
  static thread_local Scratch memory;
  return memory.get<T>(static_cast<std::size_t>(count));
}

template <class T>
void forward_image(const Products& products, const ArrayView& bias, std::int64_t n) {
  const Patches& patches = products.patches();
  T* matrix = scratch<T>(patches.rows() * patches.columns());
  for (std::int64_t g = 0; g < patches.geometry.groups; ++g) {
    patches.gather(matrix, n, g);
    const ArrayView columns =
        Products::matrix(matrix, dtype_of<T>, patches.rows(), patches.columns());
    // Positions are the rows, so that the bias is per column.
    const GemmArguments call{
        .out = transposed(products.output(n, g)),
        .a = transposed(columns),
        .b = transposed(products.weights(g)),
        .epilogue = bias ? Epilogue::bias : Epilogue::none,
        .bias = slice(bias, g * products.out_channels(), products.out_channels())};
    gemm::multiply(call, StreamRef{});
  }
}

template <class T>
void backward_data_image(const Products& products, std::int64_t n, bool accumulate) {
  using Sum = AccumulateType<T>;
  const Patches& patches = products.patches();
  const ArrayView& dx = patches.image;
  const Planes planes(dx);
  const std::int64_t channels = patches.weight.shape[1];
  const std::int64_t taps = patches.rows() * patches.columns();
  Sum* matrix = scratch<Sum>(taps + channels * planes.positions);
  Sum* image = matrix + taps;
  for (std::int64_t g = 0; g < patches.geometry.groups; ++g) {
    const GemmArguments call{
        .out = Products::matrix(matrix, dtype_of<Sum>, patches.rows(), patches.columns()),
        .a = transposed(products.weights(g)),
        .b = products.output(n, g)};
    gemm::multiply(call, StreamRef{});
    for (std::int64_t c = 0; c < channels; ++c)
      if (accumulate)
        load_row(image + c * planes.positions, dx, planes.offset(n, g * channels + c),
                 planes.position_stride, planes.positions);
      else
        std::fill_n(image + c * planes.positions, planes.positions, Sum(0));
    patches.scatter(image, matrix, g);
    for (std::int64_t c = 0; c < channels; ++c)
      store_row(dx, planes.offset(n, g * channels + c), planes.position_stride,
                image + c * planes.positions, planes.positions);
  }
}

/// Sums over images one after the other, so that the order is fixed; the products share the work.
template <class T>
void backward_weight_group(const Products& products, const ArrayView& dweight, std::int64_t g,
                           bool accumulate) {
  using Sum = AccumulateType<T>;
  const Patches& patches = products.patches();
  const std::int64_t count = products.out_channels() * patches.rows();
  static thread_local Scratch sums_memory;
  Sum* sums = sums_memory.get<Sum>(static_cast<std::size_t>(count));
  T* matrix = scratch<T>(patches.rows() * patches.columns());
  if (accumulate)
    load_row(sums, dweight, g * count, 1, count);
  else
    std::fill(sums, sums + count, Sum(0));
  for (std::int64_t n = 0; n < patches.image.shape[0]; ++n) {
    patches.gather(matrix, n, g);
    const GemmArguments call{
        .out = Products::matrix(sums, dtype_of<Sum>, products.out_channels(), patches.rows()),
        .a = products.output(n, g),
        .b = transposed(Products::matrix(matrix, dtype_of<T>, patches.rows(), patches.columns())),
        .beta = 1};
    gemm::multiply(call, StreamRef{});
  }
  store_row(dweight, g * count, 1, sums, count);
}

// Patches gathered into a matrix, then products.

}  // namespace

void convolution::forward(const kernels::ConvolutionArguments& a, StreamRef) {
  const Products products(a.y, a.x, a.weight, a.geometry);
  dispatch_floating(a.x.dtype, "convolution", [&](auto tag) {
    parallel_for(a.x.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n)
        forward_image<typename decltype(tag)::type>(products, a.bias, n);
    });
  });
}

void convolution::backward_data(const kernels::ConvolutionDataGradientArguments& a, StreamRef) {
  const Products products(a.dy, a.dx, a.weight, a.geometry);
  dispatch_floating(a.dx.dtype, "convolution backward", [&](auto tag) {
    parallel_for(a.dx.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n)
        backward_data_image<typename decltype(tag)::type>(products, n, a.accumulate);
    });
  });
}

void convolution::backward_weight(const kernels::ConvolutionWeightGradientArguments& a, StreamRef) {
  ArrayView taps = a.dweight;
  taps.dtype = a.x.dtype;  // dweight may be wider than the data
  const Products products(a.dy, a.x, taps, a.geometry);
  dispatch_floating(a.x.dtype, "convolution backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    // Many groups share the threads; a few leave them to the products.
    const std::int64_t groups = a.geometry.groups;
    parallel_for(groups, groups >= 8 ? 1 : groups, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t g = begin; g < end; ++g)
        backward_weight_group<T>(products, a.dweight, g, a.accumulate);
    });
  });
}

}  // namespace lockstep::cpu_kernels
