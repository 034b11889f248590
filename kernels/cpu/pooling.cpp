#include "arguments/pooling.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "cpu/pixel_pooling.hpp"
#include "cpu/plane_pooling.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

using functional::PoolRange;

/// One channel of one image, addressed by height and width.
template <class T>
struct Plane {
  T* data;
  std::int64_t row, column;
  Plane(const ArrayView& view, std::int64_t index)
      : data(view.as<T>() + index / view.shape[1] * view.strides[0] +
             index % view.shape[1] * view.strides[1]),
        row(view.strides[2]),
        column(view.strides[3]) {}
  T& operator()(std::int64_t h, std::int64_t w) const { return data[h * row + w * column]; }
};

void check(const ArrayView& pooled, const ArrayView& image) {
  const bool fit = pooled.rank() == 4 && image.rank() == 4 && pooled.shape[0] == image.shape[0] &&
                   pooled.shape[1] == image.shape[1] && pooled.dtype == image.dtype;
  LOCKSTEP_CHECK(fit, InvalidArgument, "pooling: ", image.dtype, ' ', image.shape,
                 " does not pool to ", pooled.dtype, ' ', pooled.shape);
}

/// Calls `body(plane index)` for every channel of every image, in parallel.
template <class Body>
void for_each_plane(const ArrayView& view, Body&& body) {
  parallel_for(view.shape[0] * view.shape[1], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

/// The windows over an image, worked out once for all its planes.
class Grid {
 public:
  Grid(const kernels::PoolGeometry& geometry, const ArrayView& pooled, const ArrayView& image) {
    const PoolWindows windows = windows_of(geometry, pooled, image);
    for (std::size_t d = 0; d < 2; ++d)
      for (std::int64_t i = 0; i < windows.axis[d].out; ++i) {
        range_[d].push_back(functional::pool_window(windows.axis[d], i));
        extent_[d].push_back(functional::pool_extent(windows.axis[d], i, windows.count_padding));
      }
  }
  /// Rows of the image that windows of a row of the output cover.
  const std::vector<PoolRange>& rows() const { return range_[0]; }
  /// Columns of the image that each window covers one after the other, for all windows of a row:
  /// `turns()[k][j]`. Windows cut by the edge repeat their last. Empty where a window has none.
  std::vector<std::vector<std::int32_t>> turns() const {
    std::int64_t most = 0, least = 1;
    for (const PoolRange& range : range_[1]) {
      most = std::max(most, range.extent());
      least = std::min(least, range.extent());
    }
    std::vector<std::vector<std::int32_t>> turns(static_cast<std::size_t>(least < 1 ? 0 : most));
    for (std::size_t k = 0; k < turns.size(); ++k)
      for (const PoolRange& range : range_[1])
        turns[k].push_back(static_cast<std::int32_t>(
            std::min(range.begin + static_cast<std::int64_t>(k), range.end - 1)));
    return turns;
  }
  /// Calls `visit(i, j, rows, columns, divisor of a mean)` for every output position.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < range_[0].size(); ++i)
      for (std::size_t j = 0; j < range_[1].size(); ++j)
        visit(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j), range_[0][i],
              range_[1][j], functional::pool_divisor(extent_[0][i], extent_[1][j]));
  }

 private:
  std::vector<PoolRange> range_[2];  // height, width
  std::vector<std::int64_t> extent_[2];
};

template <class T>
void max_forward_as(const ArrayView& y, const ArrayView& index, const ArrayView& x,
                    const Grid& cut) {
  for_each_plane(y, [&](std::int64_t plane) {
    const Plane<const T> image(x, plane);
    const Plane<T> out(y, plane);
    const Plane<std::int32_t> position(index, plane);
    cut.for_each([&](std::int64_t i, std::int64_t j, PoolRange h, PoolRange w, std::int64_t) {
      functional::PoolMaximum<AccumulateType<T>> largest;
      for (std::int64_t a = h.begin; a < h.end; ++a)
        for (std::int64_t b = w.begin; b < w.end; ++b)
          largest.take(static_cast<AccumulateType<T>>(image(a, b)), a * x.shape[3] + b);
      out(i, j) = T(largest.value);
      position(i, j) = static_cast<std::int32_t>(largest.index);
    });
  });
}

/// Lets each window of a row take one element.
template <class T, class Sum>
void take_in_turn(const T* row, std::int64_t stride, std::int32_t first,
                  std::span<const std::int32_t> columns, Sum* values, std::int32_t* places) {
  const auto take_all = [=](auto element) {
    const std::int32_t* const column = columns.data();
    const std::size_t count = columns.size();
#pragma GCC ivdep
    for (std::size_t j = 0; j < count; ++j) {
      functional::PoolMaximum<Sum, std::int32_t> largest{values[j], places[j]};
      largest.take(static_cast<Sum>(element(column[j])), first + column[j]);
      values[j] = largest.value;
      places[j] = largest.index;
    }
  };
  if (stride == 1)
    take_all([row](std::int32_t column) { return row[column]; });
  else
    take_all([row, stride](std::int32_t column) { return row[column * stride]; });
}

/// The same, a row of the output at a time: vectors of windows, of which each takes an element in
/// turn. To take the last one again changes nothing.
template <class T>
void max_rows_as(const ArrayView& y, const ArrayView& index, const ArrayView& x, const Grid& cut,
                 const std::vector<std::vector<std::int32_t>>& turns) {
  using Maximum = functional::PoolMaximum<AccumulateType<T>, std::int32_t>;
  const auto width = static_cast<std::size_t>(y.shape[3]);
  const auto row_length = static_cast<std::int32_t>(x.shape[3]);
  parallel_for(y.shape[0] * y.shape[1], 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<AccumulateType<T>> values(width);
    std::vector<std::int32_t> places(width);
    for (std::int64_t plane = begin; plane < end; ++plane) {
      const Plane<const T> image(x, plane);
      const Plane<T> out(y, plane);
      const Plane<std::int32_t> position(index, plane);
      for (std::int64_t i = 0; i < y.shape[2]; ++i) {
        std::fill(values.begin(), values.end(), Maximum().value);
        std::fill(places.begin(), places.end(), Maximum().index);
        const PoolRange rows = cut.rows()[static_cast<std::size_t>(i)];
        for (std::int64_t a = rows.begin; a < rows.end; ++a)
          for (const std::vector<std::int32_t>& columns : turns)
            take_in_turn(&image(a, 0), image.column, static_cast<std::int32_t>(a) * row_length,
                         columns, values.data(), places.data());
        for (std::size_t j = 0; j < width; ++j) {
          out(i, static_cast<std::int64_t>(j)) = T(values[j]);
          position(i, static_cast<std::int64_t>(j)) = places[j];
        }
      }
    }
  });
}

/// Computes dx plane by plane: `add(plane, sums)` fills a contiguous [H, W] of sums.
template <class T, class Add>
void gather_gradient(const ArrayView& dx, Add&& add) {
  using Sum = AccumulateType<T>;
  const std::int64_t height = dx.shape[2], width = dx.shape[3];
  parallel_for(dx.shape[0] * dx.shape[1], 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Sum> sums(static_cast<std::size_t>(height * width));
    for (std::int64_t plane = begin; plane < end; ++plane) {
      std::fill(sums.begin(), sums.end(), Sum(0));
      add(plane, sums.data());
      const Plane<T> out(dx, plane);
      for (std::int64_t h = 0; h < height; ++h)
        for (std::int64_t w = 0; w < width; ++w)
          out(h, w) = T(sums[static_cast<std::size_t>(h * width + w)]);
    }
  });
}

template <class T>
void max_backward_as(const ArrayView& dx, const ArrayView& dy, const ArrayView& index) {
  using Sum = AccumulateType<T>;
  gather_gradient<T>(dx, [&](std::int64_t plane, Sum* sums) {
    const Plane<const T> gradient(dy, plane);
    const Plane<const std::int32_t> position(index, plane);
    for (std::int64_t i = 0; i < dy.shape[2]; ++i)
      for (std::int64_t j = 0; j < dy.shape[3]; ++j)
        if (const std::int32_t at = position(i, j); at >= 0)
          sums[at] += static_cast<Sum>(gradient(i, j));
  });
}

template <class T>
void mean_forward_as(const ArrayView& y, const ArrayView& x, const Grid& cut) {
  using Sum = AccumulateType<T>;
  for_each_plane(y, [&](std::int64_t plane) {
    const Plane<const T> image(x, plane);
    const Plane<T> out(y, plane);
    cut.for_each(
        [&](std::int64_t i, std::int64_t j, PoolRange h, PoolRange w, std::int64_t divisor) {
          // In double: a compensated f32 sum, as the GPU's, costs up to four times as much here.
          double sum = 0;
          for (std::int64_t a = h.begin; a < h.end; ++a)
            for (std::int64_t b = w.begin; b < w.end; ++b) sum += static_cast<Sum>(image(a, b));
          out(i, j) = T(static_cast<Sum>(sum / static_cast<double>(divisor)));
        });
  });
}

template <class T>
void mean_backward_as(const ArrayView& dx, const ArrayView& dy, const Grid& cut) {
  using Sum = AccumulateType<T>;
  const std::int64_t width = dx.shape[3];
  gather_gradient<T>(dx, [&](std::int64_t plane, Sum* sums) {
    const Plane<const T> gradient(dy, plane);
    cut.for_each(
        [&](std::int64_t i, std::int64_t j, PoolRange h, PoolRange w, std::int64_t divisor) {
          const Sum share = static_cast<Sum>(gradient(i, j)) / static_cast<Sum>(divisor);
          for (std::int64_t a = h.begin; a < h.end; ++a)
            for (std::int64_t b = w.begin; b < w.end; ++b) sums[a * width + b] += share;
        });
  });
}

// Channels-last images: all channels of a position at once. Others: plain loops, one channel of one
// image at a time, whose backward scatters where the GPU's gathers, since one thread owns the
// plane.

}  // namespace

void pooling::max(const kernels::MaxPoolArguments& a, StreamRef) {
  check(a.y, a.x);
  if (max_pixels(a)) return;
  const Grid cut(a.geometry, a.y, a.x);
  const auto turns = cut.turns();
  dispatch_floating(a.x.dtype, "max_pool2d", [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (turns.empty())
      max_forward_as<T>(a.y, a.index, a.x, cut);
    else
      max_rows_as<T>(a.y, a.index, a.x, cut, turns);
  });
}

void pooling::max_backward(const kernels::MaxPoolBackwardArguments& a, StreamRef) {
  check(a.dy, a.dx);
  if (max_pixels_backward(a)) return;
  dispatch_floating(a.dx.dtype, "max_pool2d backward", [&](auto tag) {
    max_backward_as<typename decltype(tag)::type>(a.dx, a.dy, a.index);
  });
}

void pooling::average(const kernels::AveragePoolArguments& a, StreamRef) {
  check(a.y, a.x);
  if (average_pixels(a) || average_planes(a)) return;
  const Grid cut(a.geometry, a.y, a.x);
  dispatch_floating(a.x.dtype, "avg_pool2d", [&](auto tag) {
    mean_forward_as<typename decltype(tag)::type>(a.y, a.x, cut);
  });
}

void pooling::average_backward(const kernels::AveragePoolBackwardArguments& a, StreamRef) {
  check(a.dy, a.dx);
  if (average_pixels_backward(a) || average_planes_backward(a)) return;
  const Grid cut(a.geometry, a.dy, a.dx);
  dispatch_floating(a.dx.dtype, "avg_pool2d backward", [&](auto tag) {
    mean_backward_as<typename decltype(tag)::type>(a.dx, a.dy, cut);
  });
}

}  // namespace lockstep::cpu_kernels
