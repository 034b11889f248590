#include "arguments/reduction.hpp"
#include "cuda/group.hpp"
#include "cuda/lines.hpp"

namespace lockstep::cuda_kernels {
namespace {

constexpr int threads = 256;

/// An element and its place; NaN counts as larger than all, the first of equals wins.
template <class A>
struct Candidate {
  A value;
  std::int64_t index;  // -1: none yet

  __device__ bool before(const Candidate& other, bool largest) const {
    if (index < 0 || other.index < 0) return index >= 0;
    const bool nan = value != value;
    const bool other_nan = other.value != other.value;
    if (nan != other_nan) return nan;
    if (value == other.value || nan) return index < other.index;
    return largest ? value > other.value : value < other.value;
  }
};

template <class A>
struct Better {
  bool largest;
  __device__ Candidate<A> operator()(const Candidate<A>& a, const Candidate<A>& b) const {
    return a.before(b, largest) ? a : b;
  }
};

/// The group's best element of a line that comes after `last` in the order.
template <class Group, class T>
__device__ Candidate<AccumulateType<T>> best_after(const Group& group, const T* line,
                                                   std::int64_t length, std::int64_t stride,
                                                   const Candidate<AccumulateType<T>>& last,
                                                   bool largest) {
  using A = AccumulateType<T>;
  Candidate<A> best{A{}, -1};
  for (std::int64_t i = group.rank(); i < length; i += group.size()) {
    const Candidate<A> here{convert<A>(line[i * stride]), i};
    if (last.index >= 0 && !last.before(here, largest)) continue;
    if (here.before(best, largest)) best = here;
  }
  return group.reduce(best, Better<A>{largest});
}

template <class T>
__global__ void __launch_bounds__(threads)
    arg_extreme_kernel(const __grid_constant__ Lines<2> lines, std::int64_t* out, const T* in,
                       bool largest) {
  using A = AccumulateType<T>;
  const WarpGroup group;
  for (std::int64_t i = first_row<WarpGroup>(); i < lines.starts.count;
       i += row_step<WarpGroup>()) {
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i));
    const auto best = best_after(group, in + at.of[1], lines.length[1], lines.stride[1],
                                 Candidate<A>{A{}, -1}, largest);
    if (group.rank() == 0) out[at.of[0]] = best.index;
  }
}

/// One pass over the line for each of the k.
template <class T>
__global__ void __launch_bounds__(threads)
    topk_kernel(const __grid_constant__ Lines<3> lines, T* values, std::int64_t* indices,
                const T* in) {
  using A = AccumulateType<T>;
  const BlockGroup group;
  for (std::int64_t i = blockIdx.x; i < lines.starts.count; i += gridDim.x) {
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i));
    const T* const line = in + at.of[2];
    Candidate<A> best{A{}, -1};
    for (std::int64_t j = 0; j < lines.length[0]; ++j) {
      best = best_after(group, line, lines.length[2], lines.stride[2], best, true);
      if (group.rank() != 0) continue;
      values[at.of[0] + j * lines.stride[0]] = line[best.index * lines.stride[2]];
      indices[at.of[1] + j * lines.stride[1]] = best.index;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(threads)
    cumsum_kernel(const __grid_constant__ Lines<2> lines, T* out, const T* in, bool reverse) {
  using A = AccumulateType<T>;
  for (std::int64_t i = global_thread(); i < lines.starts.count; i += grid_threads()) {
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i));
    A sum{};
    for (std::int64_t j = 0; j < lines.length[0]; ++j) {
      const std::int64_t place = reverse ? lines.length[0] - 1 - j : j;
      sum += convert<A>(in[at.of[1] + place * lines.stride[1]]);
      out[at.of[0] + place * lines.stride[0]] = convert<T>(sum);
    }
  }
}

}  // namespace

void reduction::arg_extreme(const kernels::ArgExtremeArguments& a, StreamRef stream) {
  if (a.out.numel() == 0) return;
  const auto lines = lines_along<2>(a.dim, {&a.out, &a.in});
  dispatch_numeric(a.in.dtype, "arg_extreme", [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(std::int64_t{lines.starts.count} * warp_size, threads), threads, 0,
           arg_extreme_kernel<T>, lines, a.out.as<std::int64_t>(), a.in.as<T>(), a.largest);
  });
}

void reduction::topk(const kernels::TopkArguments& a, StreamRef stream) {
  if (a.values.numel() == 0 || a.k == 0) return;
  const auto lines = lines_along<3>(a.in.rank() - 1, {&a.values, &a.indices, &a.in});
  dispatch_numeric(a.in.dtype, "topk", [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(lines.starts.count, 1), threads, 0, topk_kernel<T>, lines,
           a.values.as<T>(), a.indices.as<std::int64_t>(), a.in.as<T>());
  });
}

void reduction::cumsum(const kernels::CumsumArguments& a, StreamRef stream) {
  if (a.out.numel() == 0) return;
  const auto lines = lines_along<2>(a.dim, {&a.out, &a.in});
  dispatch_numeric(a.in.dtype, "cumsum", [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(lines.starts.count, threads), threads, 0, cumsum_kernel<T>, lines,
           a.out.as<T>(), a.in.as<T>(), a.reverse);
  });
}

}  // namespace lockstep::cuda_kernels
