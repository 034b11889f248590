#include "arguments/interpolation.hpp"
#include "cuda/image.hpp"

namespace lockstep::cuda_kernels {
namespace {

using functional::takers_of;
using functional::taps_of;

template <class T>
struct Interpolate {
  using A = AccumulateType<T>;
  InterpolationAxis height, width;
  Image in;
  const T* x;

  __device__ A operator()(const Place& at) const {
    return functional::interpolated<A>(taps_of(height, at.h), taps_of(width, at.w),
                                       [&](std::int64_t h, std::int64_t w) {
                                         return convert<A>(x[in.offset({at.n, at.c, h, w})]);
                                       });
  }
};

/// Positions of the input gather from the outputs that they entered.
template <class T>
struct InterpolateBackward {
  using A = AccumulateType<T>;
  InterpolationAxis height, width;
  Image out;
  const T* dy;

  __device__ A operator()(const Place& at) const {
    return functional::interpolated_gradient<A>(
        at.h, at.w, takers_of(height, at.h), takers_of(width, at.w),
        [&](std::int64_t i) { return taps_of(height, i); },
        [&](std::int64_t j) { return taps_of(width, j); },
        [&](std::int64_t i, std::int64_t j) {
          return convert<A>(dy[out.offset({at.n, at.c, i, j})]);
        });
  }
};

}  // namespace

void interpolation::forward(const kernels::InterpolationArguments& a, StreamRef stream) {
  dispatch_floating(a.y.dtype, "interpolate", [&]<class T>(TypeTag<T>) {
    launch_gather<T>(a.y, Interpolate<T>{a.height, a.width, Image(a.x), a.x.as<T>()}, stream);
  });
}

void interpolation::backward(const kernels::InterpolationBackwardArguments& a, StreamRef stream) {
  dispatch_floating(a.dx.dtype, "interpolate_backward", [&]<class T>(TypeTag<T>) {
    launch_gather<T>(a.dx, InterpolateBackward<T>{a.height, a.width, Image(a.dy), a.dy.as<T>()},
                     stream);
  });
}

}  // namespace lockstep::cuda_kernels
