#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/cpu/families.hpp"
#include "backend/spatial.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::backend {
namespace {

/// Image positions that one output position covers along one dimension.
struct Window {
  std::int64_t begin, end;  ///< clipped to the image
  std::int64_t padded;      ///< extent clipped to the padded image only
};

/// Windows of every output position along dimension `d` (0 height, 1 width).
std::vector<Window> windows(const PoolGeometry& geometry, std::size_t d, std::int64_t in,
                            std::int64_t out) {
  std::vector<Window> all(static_cast<std::size_t>(out));
  for (std::int64_t i = 0; i < out; ++i) {
    const std::int64_t start = i * geometry.stride[d] - geometry.padding[d];
    const std::int64_t end = std::min(start + geometry.kernel[d], in + geometry.padding[d]);
    const std::int64_t begin = std::max<std::int64_t>(start, 0);
    all[static_cast<std::size_t>(i)] = {begin, std::max(begin, std::min(end, in)),
                                        std::max<std::int64_t>(end - start, 0)};
  }
  return all;
}

std::vector<Window> adaptive_windows(std::int64_t in, std::int64_t out) {
  std::vector<Window> all(static_cast<std::size_t>(out));
  for (std::int64_t i = 0; i < out; ++i) {
    const std::int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
    all[static_cast<std::size_t>(i)] = {begin, end, end - begin};
  }
  return all;
}

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

/// The cut of an image into windows, and what the sum of a window is divided by.
struct Grid {
  std::vector<Window> rows, columns;
  bool count_padding = false;

  double divisor(const Window& h, const Window& w) const {
    if (count_padding) return static_cast<double>(h.padded * w.padded);
    return static_cast<double>(std::max<std::int64_t>((h.end - h.begin) * (w.end - w.begin), 1));
  }
  /// Calls `visit(i, j, row window, column window)` for every output position.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t j = 0; j < columns.size(); ++j)
        visit(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j), rows[i], columns[j]);
  }
};

Grid grid(const PoolGeometry& geometry, const ArrayView& pooled, const ArrayView& image) {
  return {windows(geometry, 0, image.shape[2], pooled.shape[2]),
          windows(geometry, 1, image.shape[3], pooled.shape[3]), geometry.count_include_pad};
}
Grid adaptive_grid(const ArrayView& pooled, const ArrayView& image) {
  return {adaptive_windows(image.shape[2], pooled.shape[2]),
          adaptive_windows(image.shape[3], pooled.shape[3])};
}

/// Value and flat position of the first maximum of a window; NaN is larger than all.
template <class T>
std::pair<T, std::int64_t> maximum(const Plane<const T>& plane, const Window& h, const Window& w,
                                   std::int64_t width) {
  using Sum = AccumulateType<T>;
  Sum best = -std::numeric_limits<Sum>::infinity();
  std::int64_t at = -1;
  for (std::int64_t i = h.begin; i < h.end; ++i)
    for (std::int64_t j = w.begin; j < w.end; ++j) {
      const Sum value = static_cast<Sum>(plane(i, j));
      if (at >= 0 && !(value > best) && !(std::isnan(value) && !std::isnan(best))) continue;
      best = value;
      at = i * width + j;
    }
  return {T(best), at};
}

template <class T>
void max_forward_as(const ArrayView& y, const ArrayView& index, const ArrayView& x,
                    const Grid& cut) {
  for_each_plane(y, [&](std::int64_t plane) {
    const Plane<const T> image(x, plane);
    const Plane<T> out(y, plane);
    const Plane<std::int64_t> position(index, plane);
    cut.for_each([&](std::int64_t i, std::int64_t j, const Window& h, const Window& w) {
      std::tie(out(i, j), position(i, j)) = maximum<T>(image, h, w, x.shape[3]);
    });
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
    const Plane<const std::int64_t> position(index, plane);
    for (std::int64_t i = 0; i < dy.shape[2]; ++i)
      for (std::int64_t j = 0; j < dy.shape[3]; ++j)
        if (const std::int64_t at = position(i, j); at >= 0)
          sums[at] += static_cast<Sum>(gradient(i, j));
  });
}

template <class T>
void mean_forward_as(const ArrayView& y, const ArrayView& x, const Grid& cut) {
  using Sum = AccumulateType<T>;
  for_each_plane(y, [&](std::int64_t plane) {
    const Plane<const T> image(x, plane);
    const Plane<T> out(y, plane);
    cut.for_each([&](std::int64_t i, std::int64_t j, const Window& h, const Window& w) {
      double sum = 0;  // one after another in f32, a large window would lose digits
      for (std::int64_t a = h.begin; a < h.end; ++a)
        for (std::int64_t b = w.begin; b < w.end; ++b) sum += static_cast<Sum>(image(a, b));
      out(i, j) = T(static_cast<Sum>(sum / cut.divisor(h, w)));
    });
  });
}

template <class T>
void mean_backward_as(const ArrayView& dx, const ArrayView& dy, const Grid& cut) {
  using Sum = AccumulateType<T>;
  const std::int64_t width = dx.shape[3];
  gather_gradient<T>(dx, [&](std::int64_t plane, Sum* sums) {
    const Plane<const T> gradient(dy, plane);
    cut.for_each([&](std::int64_t i, std::int64_t j, const Window& h, const Window& w) {
      const Sum share = static_cast<Sum>(gradient(i, j)) / static_cast<Sum>(cut.divisor(h, w));
      for (std::int64_t a = h.begin; a < h.end; ++a)
        for (std::int64_t b = w.begin; b < w.end; ++b) sums[a * width + b] += share;
    });
  });
}

/// Plain loops, one channel of one image at a time.
class CpuPooling final : public Pooling {
 public:
  void max_forward(const ArrayView& y, const ArrayView& index, const ArrayView& x,
                   const PoolGeometry& geometry, StreamRef) override {
    check(y, x);
    const Grid cut = grid(geometry, y, x);
    dispatch_floating(x.dtype, "max_pool2d", [&](auto tag) {
      max_forward_as<typename decltype(tag)::type>(y, index, x, cut);
    });
  }
  void max_backward(const ArrayView& dx, const ArrayView& dy, const ArrayView& index,
                    const PoolGeometry&, StreamRef) override {
    check(dy, dx);
    dispatch_floating(dx.dtype, "max_pool2d backward", [&](auto tag) {
      max_backward_as<typename decltype(tag)::type>(dx, dy, index);
    });
  }
  void average_forward(const ArrayView& y, const ArrayView& x, const PoolGeometry& geometry,
                       StreamRef) override {
    mean_forward(y, x, grid(geometry, y, x));
  }
  void average_backward(const ArrayView& dx, const ArrayView& dy, const PoolGeometry& geometry,
                        StreamRef) override {
    mean_backward(dx, dy, grid(geometry, dy, dx));
  }
  void adaptive_average_forward(const ArrayView& y, const ArrayView& x, StreamRef) override {
    mean_forward(y, x, adaptive_grid(y, x));
  }
  void adaptive_average_backward(const ArrayView& dx, const ArrayView& dy, StreamRef) override {
    mean_backward(dx, dy, adaptive_grid(dy, dx));
  }

 private:
  static void mean_forward(const ArrayView& y, const ArrayView& x, const Grid& cut) {
    check(y, x);
    dispatch_floating(x.dtype, "avg_pool2d",
                      [&](auto tag) { mean_forward_as<typename decltype(tag)::type>(y, x, cut); });
  }
  static void mean_backward(const ArrayView& dx, const ArrayView& dy, const Grid& cut) {
    check(dy, dx);
    dispatch_floating(dx.dtype, "avg_pool2d backward", [&](auto tag) {
      mean_backward_as<typename decltype(tag)::type>(dx, dy, cut);
    });
  }
};

}  // namespace

Pooling& cpu_pooling() {
  static CpuPooling family;
  return family;
}

}  // namespace lockstep::backend
