#pragma once

#include <utility>

#include "cuda/launch.hpp"
#include "cuda/layout.hpp"
#include "cuda/vector.hpp"

/// @file
/// The engine of all elementwise kernels: out = op(in...) over strided arrays of one shape.

namespace lockstep::cuda_kernels {

inline constexpr int pointwise_threads = 256;

/// N neighbours along the innermost dimension; one element N times where the stride is 0.
template <int N, class T>
__device__ Vector<T, N> load_lanes(const T* address, std::int64_t stride, int live) {
  if (stride == 1 && live == N) return load_vector<N>(address);
  Vector<T, N> result;
  LOCKSTEP_UNROLL
  for (int j = 0; j < N; ++j) result.lane[j] = j < live ? address[j * stride] : T{};
  return result;
}

/// Writes the first `live` of N neighbours.
template <int N, class T>
__device__ void store_lanes(T* address, const Vector<T, N>& value, int live) {
  if (live == N) return store_vector<N>(address, value);
  for (int j = 0; j < N; ++j)
    if (j < live) address[j] = value.lane[j];
}

template <int N, class Out, class Op, class... In>
__device__ Vector<Out, N> apply_lanes(const Op& op, const Vector<In, N>&... in) {
  Vector<Out, N> result;
  LOCKSTEP_UNROLL
  for (int j = 0; j < N; ++j) result.lane[j] = op(in.lane[j]...);
  return result;
}

/// Every block takes tiles of N elements a thread: N neighbours where the layout allows wide loads,
/// else elements a block's width apart.
template <int N, class Out, class Op, class... In, std::size_t... K>
__device__ void pointwise_tiles(std::index_sequence<K...>,
                                const Layout<1 + static_cast<int>(sizeof...(In))>& layout,
                                const Op& op, Out* out, const In*... in) {
  const std::uint32_t tile = blockDim.x * N;
  for (std::uint32_t base = blockIdx.x * tile; base < layout.count; base += gridDim.x * tile) {
    if (layout.vectorised) {
      const std::uint32_t first = base + threadIdx.x * N;
      if (first >= layout.count) continue;
      const int live = layout.count - first < N ? static_cast<int>(layout.count - first) : N;
      const auto at = layout.offsets(first);
      const auto result = apply_lanes<N, Out>(
          op, load_lanes<N>(in + at.of[K + 1], layout.strides[K + 1][0], live)...);
      store_lanes<N>(out + at.of[0], result, live);
    } else {
      LOCKSTEP_NO_UNROLL
      for (int j = 0; j < N; ++j) {
        const std::uint32_t index = base + j * blockDim.x + threadIdx.x;
        if (index >= layout.count) break;
        const auto at = layout.offsets(index);
        out[at.of[0]] = op(in[at.of[K + 1]]...);
      }
    }
  }
}

template <int N, class Out, class Op, class... In>
__global__ void __launch_bounds__(pointwise_threads)
    pointwise_kernel(const __grid_constant__ Layout<1 + static_cast<int>(sizeof...(In))> layout,
                     const Op op, Out* out, const In*... in) {
  pointwise_tiles<N>(std::index_sequence_for<In...>{}, layout, op, out, in...);
}

/// Queues out = op(in...) for arrays of one shape. `Op` takes the inputs' element types and returns
/// the output's.
template <class Out, class... In, class Op, class... Views>
void pointwise(StreamRef stream, const Op& op, const ArrayView& out, const Views&... in) {
  constexpr int operands = 1 + static_cast<int>(sizeof...(In));
  constexpr int lanes = lanes_of<Out, In...>;
  if (out.numel() == 0) return;
  const ArraySet<operands> arrays({&out, &in...});
  arrays.for_each_part([&](const ArraySet<operands>& part) {
    const auto layout = part.layout(lanes);
    const unsigned grid = grid_for((layout.count + lanes - 1) / lanes, pointwise_threads);
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      launch(stream, grid, pointwise_threads, 0, pointwise_kernel<lanes, Out, Op, In...>, layout,
             op, reinterpret_cast<Out*>(part.data[0]),
             reinterpret_cast<const In*>(part.data[K + 1])...);
    }
    (std::index_sequence_for<In...>{});
  });
}

}  // namespace lockstep::cuda_kernels
