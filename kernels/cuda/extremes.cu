#include <algorithm>

#include "arguments/reduction.hpp"
#include "cuda/group.hpp"
#include "cuda/lines.hpp"
#include "cuda/scratch.hpp"
#include "functional/reduction.hpp"

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

/// Some of the elements of a line.
struct Part {
  std::int64_t first, end, stride;
};

/// The group's best element of those that come after `last` in the order.
template <class Group, class T>
__device__ Candidate<AccumulateType<T>> best_after(const Group& group, const T* line,
                                                   const Part& part,
                                                   const Candidate<AccumulateType<T>>& last,
                                                   bool largest) {
  using A = AccumulateType<T>;
  Candidate<A> best{A{}, -1};
  for (std::int64_t i = part.first + group.rank(); i < part.end; i += group.size()) {
    const Candidate<A> here{convert<A>(line[i * part.stride]), i};
    if (last.index >= 0 && !last.before(here, largest)) continue;
    if (here.before(best, largest)) best = here;
  }
  return group.reduce(best, Better<A>{largest});
}

/// blockIdx.y: which part of each line. @param partial [lines, parts], or null if there is one part
template <class Group, class T>
__global__ void __launch_bounds__(threads)
    arg_extreme_kernel(const __grid_constant__ Lines<2> lines, std::int64_t* out,
                       Candidate<AccumulateType<T>>* partial, const T* in, bool largest) {
  using A = AccumulateType<T>;
  const Group group;
  const std::int64_t length = lines.length[1], each = (length + gridDim.y - 1) / gridDim.y;
  const std::int64_t first = blockIdx.y * each;
  const Part part{first, first + each < length ? first + each : length, lines.stride[1]};
  for (std::int64_t i = first_row<Group>(); i < lines.starts.count; i += row_step<Group>()) {
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i));
    const auto best = best_after(group, in + at.of[1], part, Candidate<A>{A{}, -1}, largest);
    if (group.rank() != 0) continue;
    if (partial)
      partial[i * gridDim.y + blockIdx.y] = best;
    else
      out[at.of[0]] = best.index;
  }
}

/// The best of the parts of each line.
template <class A>
__global__ void __launch_bounds__(threads)
    best_part_kernel(const __grid_constant__ Lines<2> lines, std::int64_t* out,
                     const Candidate<A>* partial, unsigned parts, bool largest) {
  const Better<A> better{largest};
  for (std::int64_t i = global_thread(); i < lines.starts.count; i += grid_threads()) {
    Candidate<A> best = partial[i * parts];
    for (unsigned part = 1; part < parts; ++part) best = better(best, partial[i * parts + part]);
    out[lines.starts.offsets(static_cast<std::uint32_t>(i)).of[0]] = best.index;
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
      best = best_after(group, line, {0, lines.length[2], lines.stride[2]}, best, true);
      if (group.rank() != 0) continue;
      values[at.of[0] + j * lines.stride[0]] = line[best.index * lines.stride[2]];
      indices[at.of[1] + j * lines.stride[1]] = best.index;
    }
  }
}

/// What running sums and products are kept in: f64, as on the CPU, so that long lines lose nothing;
/// integers count modulo 2^64.
template <class T>
using RunningTotal =
    std::conditional_t<std::is_integral_v<AccumulateType<T>>, std::uint64_t, double>;

template <class T>
__device__ RunningTotal<T> widened(T value) {
  return static_cast<RunningTotal<T>>(convert<AccumulateType<T>>(value));
}

template <class T>
__device__ T narrowed(RunningTotal<T> total) {
  return convert<T>(static_cast<AccumulateType<T>>(total));
}

/// A thread a line: of many lines, or short ones.
template <ReduceOp op, class T>
__global__ void __launch_bounds__(threads)
    scan_kernel(const __grid_constant__ Lines<2> lines, T* out, const T* in, bool reverse) {
  for (std::int64_t i = global_thread(); i < lines.starts.count; i += grid_threads()) {
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i));
    RunningTotal<T> total = op == ReduceOp::prod ? 1 : 0;
    for (std::int64_t j = 0; j < lines.length[0]; ++j) {
      const std::int64_t place = reverse ? lines.length[0] - 1 - j : j;
      functional::reduction_combine<op>(total, widened(in[at.of[1] + place * lines.stride[1]]));
      out[at.of[0] + place * lines.stride[0]] = narrowed<T>(total);
    }
  }
}

/// A block a line: as many elements as it has threads at once, by totals within warps and over
/// them.
template <ReduceOp op, class T>
__global__ void __launch_bounds__(threads)
    long_scan_kernel(const __grid_constant__ Lines<2> lines, T* out, const T* in, bool reverse) {
  using A = RunningTotal<T>;
  constexpr A nothing = op == ReduceOp::prod ? 1 : 0;
  constexpr int warps = threads / warp_size;
  __shared__ A of_warp[warps];
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t length = lines.length[0];
  for (std::int64_t i = blockIdx.x; i < lines.starts.count; i += gridDim.x) {
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i));
    A before = nothing;  // all that the block has passed
    for (std::int64_t first = 0; first < length; first += threads) {
      const std::int64_t j = first + threadIdx.x;
      const std::int64_t place = reverse ? length - 1 - j : j;
      A total = j < length ? widened(in[at.of[1] + place * lines.stride[1]]) : nothing;
      for (int distance = 1; distance < warp_size; distance *= 2) {
        const A lower = __shfl_up_sync(0xFFFFFFFFu, total, static_cast<unsigned>(distance));
        if (lane >= distance) functional::reduction_combine<op>(total, lower);
      }
      __syncthreads();  // the former totals' readers are done
      if (lane == warp_size - 1) of_warp[warp] = total;
      __syncthreads();
      A lower_warps = before;
      for (int w = 0; w < warps; ++w) {
        if (w == warp) lower_warps = before;
        functional::reduction_combine<op>(before, of_warp[w]);
      }
      functional::reduction_combine<op>(total, lower_warps);
      if (j < length) out[at.of[0] + place * lines.stride[0]] = narrowed<T>(total);
    }
  }
}

template <ReduceOp op>
void scan_by(const kernels::ScanArguments& a, StreamRef stream, const char* name) {
  const auto lines = lines_along<2>(a.dim, {&a.out, &a.in});
  dispatch_numeric(a.in.dtype, name, [&]<class T>(TypeTag<T>) {
    // From so many lines on a thread each keeps the device busy; below, so short ones are few
    // steps.
    constexpr std::int64_t many_lines = 1 << 16, short_line = 64;
    const std::int64_t count = lines.starts.count;
    const bool is_long = count < many_lines && lines.length[0] > short_line;
    launch(stream, grid_for(count, is_long ? 1 : threads), threads, 0,
           is_long ? long_scan_kernel<op, T> : scan_kernel<op, T>, lines, a.out.as<T>(),
           a.in.as<T>(), a.reverse);
  });
}

}  // namespace

void reduction::arg_extreme(const kernels::ArgExtremeArguments& a, StreamRef stream) {
  if (a.out.numel() == 0) return;
  const auto lines = lines_along<2>(a.dim, {&a.out, &a.in});
  dispatch_numeric(a.in.dtype, "arg_extreme", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    const std::int64_t count = lines.starts.count, length = lines.length[1];
    const auto out = a.out.as<std::int64_t>();
    if (length <= most_columns_of_warp)
      return launch(stream, grid_for(count * warp_size, threads), threads, 0,
                    arg_extreme_kernel<WarpGroup, T>, lines, out,
                    static_cast<Candidate<A>*>(nullptr), a.in.as<T>(), a.largest);
    // Few lines, if long, would leave most of the GPU idle.
    constexpr std::int64_t wanted_blocks = 512, shortest_part = 8192;
    const auto parts = static_cast<unsigned>(std::clamp<std::int64_t>(
        length / shortest_part, 1, std::max<std::int64_t>(1, wanted_blocks / count)));
    const Scratch scratch(parts > 1 ? sizeof(Candidate<A>) * parts * lines.starts.count : 0,
                          stream);
    const auto partial = static_cast<Candidate<A>*>(scratch.data());
    launch(stream, dim3(grid_for(count, 1), parts), dim3(threads), 0,
           arg_extreme_kernel<BlockGroup, T>, lines, out, partial, a.in.as<T>(), a.largest);
    if (parts > 1)
      launch(stream, grid_for(count, threads), threads, 0, best_part_kernel<A>, lines, out,
             static_cast<const Candidate<A>*>(partial), parts, a.largest);
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

void reduction::scan(const kernels::ScanArguments& a, StreamRef stream) {
  if (a.out.numel() == 0) return;
  if (a.op == ReduceOp::prod) return scan_by<ReduceOp::prod>(a, stream, "cumprod");
  scan_by<ReduceOp::sum>(a, stream, "cumsum");
}

}  // namespace lockstep::cuda_kernels
