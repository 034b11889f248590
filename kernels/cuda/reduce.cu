#include <algorithm>
#include <bit>

#include "arguments/elementwise.hpp"
#include "arguments/reduction.hpp"
#include "cuda/column_sums.hpp"
#include "cuda/group.hpp"
#include "cuda/kept_rows.hpp"
#include "cuda/reduce_plan.hpp"
#include "cuda/scratch.hpp"
#include "functional/reduction.hpp"

namespace lockstep::cuda_kernels {
namespace {

constexpr int block_width = 32;
constexpr int block_height = 8;
constexpr int block_threads = block_width * block_height;
constexpr std::uint32_t most_terms_of_warp = 512;  // an output of more takes a block

template <ReduceOp op, class A>
__device__ A combine(A total, A other) {
  functional::reduction_combine<op>(total, other);
  return total;
}

/// Reads elements of T and writes results of Out: the first or only stage of a reduction.
template <ReduceOp op, class T, class Out>
struct Ends {
  using A = AccumulateType<T>;
  Out* out;
  const T* in;
  A* partial;  ///< [splits, outputs], or null if there is one stage
  A divisor;
  bool accumulate;

  __device__ A term(std::int64_t at) const {
    A x = convert<A>(in[at]);
    functional::reduction_prepare<op>(x);
    return x;
  }
  __device__ void store(std::int64_t at, std::int64_t slot, A value) const {
    if (partial) {
      partial[slot] = value;
      return;
    }
    if (op == ReduceOp::mean) value = value / divisor;
    out[at] = convert<Out>(accumulate ? convert<A>(out[at]) + value : value);
  }
};

/// The share of the terms of this block's split.
struct Share {
  std::uint32_t first, last;
  __device__ explicit Share(std::uint32_t terms) {
    const std::uint32_t each = (terms + gridDim.y - 1) / gridDim.y;
    first = blockIdx.y * each;
    last = first + each < terms ? first + each : terms;
  }
};

/// A block an output: neighbouring threads take neighbouring terms.
template <ReduceOp op, class T, class Out>
__global__ void __launch_bounds__(block_threads)
    reduce_rows_kernel(const __grid_constant__ ReducePlan plan, Ends<op, T, Out> ends) {
  using A = AccumulateType<T>;
  const BlockGroup group;
  const Share share(plan.reduced.count);
  for (std::uint32_t output = blockIdx.x; output < plan.kept.count; output += gridDim.x) {
    const auto at = plan.kept.offsets(output);
    A value{};
    bool some = false;
    for (std::uint32_t i = share.first + threadIdx.x; i < share.last; i += block_threads) {
      const A term = ends.term(at.of[1] + plan.reduced.offsets(i).of[0]);
      value = some ? combine<op>(value, term) : term;
      some = true;
    }
    struct Part {
      A value;
      alignas(4) std::uint32_t some;
    };
    const Part total = group.reduce(Part{value, some}, [](const Part& a, const Part& b) {
      if (!a.some || !b.some) return a.some ? a : b;
      return Part{combine<op>(a.value, b.value), 1};
    });
    if (threadIdx.x == 0)
      ends.store(at.of[0], static_cast<std::int64_t>(blockIdx.y) * plan.kept.count + output,
                 total.value);
  }
}

/// So many threads an output as it has terms, up to a warp: of short rows a block has many.
template <ReduceOp op, class T, class Out>
__global__ void __launch_bounds__(block_threads)
    reduce_short_rows_kernel(const __grid_constant__ ReducePlan plan, Ends<op, T, Out> ends,
                             std::uint32_t lanes) {
  using A = AccumulateType<T>;
  const std::uint32_t lane = threadIdx.x % lanes, terms = plan.reduced.count;
  const std::uint32_t step = gridDim.x * (block_threads / lanes);
  for (std::uint32_t base = blockIdx.x * (block_threads / lanes); base < plan.kept.count;
       base += step) {
    const std::uint32_t output = base + threadIdx.x / lanes;
    const bool live = output < plan.kept.count;
    const auto at = plan.kept.offsets(live ? output : 0);
    A value{};
    if (lane < terms) value = ends.term(at.of[1] + plan.reduced.offsets(lane).of[0]);
    for (std::uint32_t i = lane + lanes; i < terms; i += lanes)
      value = combine<op>(value, ends.term(at.of[1] + plan.reduced.offsets(i).of[0]));
    for (std::uint32_t distance = lanes / 2; distance > 0; distance /= 2) {
      const A other = shuffle_xor(value, static_cast<int>(distance));
      if (lane < distance && lane + distance < terms) value = combine<op>(value, other);
    }
    if (live && lane == 0) ends.store(at.of[0], output, value);
  }
}

/// A thread a column: neighbouring threads take neighbouring outputs.
template <ReduceOp op, class T, class Out>
__global__ void __launch_bounds__(block_threads)
    reduce_columns_kernel(const __grid_constant__ ReducePlan plan, Ends<op, T, Out> ends) {
  using A = AccumulateType<T>;
  __shared__ A partial[block_height][block_width];
  const Share share(plan.reduced.count);
  const std::uint32_t step = gridDim.x * block_width;
  for (std::uint32_t base = blockIdx.x * block_width; base < plan.kept.count; base += step) {
    const std::uint32_t output = base + threadIdx.x;
    const bool live = output < plan.kept.count;
    const auto at = plan.kept.offsets(live ? output : 0);
    const std::uint32_t begin = share.first + threadIdx.y;
    A value{};
    if (live && begin < share.last) value = ends.term(at.of[1] + plan.reduced.offsets(begin).of[0]);
    for (std::uint32_t i = begin + block_height; live && i < share.last; i += block_height)
      value = combine<op>(value, ends.term(at.of[1] + plan.reduced.offsets(i).of[0]));
    __syncthreads();
    partial[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.y != 0 || !live) continue;
    const std::uint32_t terms = share.last > share.first ? share.last - share.first : 0;
    for (std::uint32_t y = 1; y < block_height && y < terms; ++y)
      value = combine<op>(value, partial[y][threadIdx.x]);
    ends.store(at.of[0], static_cast<std::int64_t>(blockIdx.y) * plan.kept.count + output, value);
  }
}

/// Stage two: a thread an output goes through the partial results in order.
template <ReduceOp op, class T, class Out>
__global__ void __launch_bounds__(block_threads)
    finish_kernel(const __grid_constant__ ReducePlan plan, Ends<op, T, Out> ends,
                  const AccumulateType<T>* partial) {
  for (std::int64_t output = global_thread(); output < plan.kept.count; output += grid_threads()) {
    auto value = partial[output];
    for (unsigned split = 1; split < plan.splits; ++split)
      value =
          combine<op>(value, partial[static_cast<std::int64_t>(split) * plan.kept.count + output]);
    ends.store(plan.kept.offsets(static_cast<std::uint32_t>(output)).of[0], 0, value);
  }
}

/// Adds up columns by wide loads, where the arrays allow it. @returns whether they do
template <ReduceOp op, class T, class Out>
bool runs_wide(const ReducePlan& plan, const kernels::ReduceArguments& arguments,
               StreamRef stream) {
  if constexpr ((op == ReduceOp::sum || op == ReduceOp::mean) && is_floating_type<T>) {
    using A = AccumulateType<T>;
    const std::int64_t terms = plan.reduced.count, columns = plan.kept.count;
    if (plan.along_rows || plan.kept.rank != 1 || plan.kept.strides[0][0] != 1 ||
        plan.kept.strides[1][0] != 1 || plan.reduced.rank != 1)
      return false;
    const std::int64_t pitch = plan.reduced.strides[0][0];
    if (columns % lanes_of<T> != 0 ||
        !rows_are_wide<T>(pitch, arguments.in.data, arguments.out.data))
      return false;
    sum_wide_columns<T, Out>(
        stream, multiprocessors_of(stream.device.index),
        {arguments.out.as<Out>(), arguments.in.as<T>(), pitch, terms, columns,
         static_cast<A>(op == ReduceOp::mean ? terms : 1), arguments.accumulate});
    return true;
  }
  return false;
}

template <ReduceOp op, class T, class Out>
void run(const kernels::ReduceArguments& arguments, StreamRef stream) {
  using A = AccumulateType<T>;
  ReducePlan plan = plan_reduce(arguments.out, arguments.in);
  if (runs_wide<op, T, Out>(plan, arguments, stream)) return;
  // No share of the terms may be empty: it would have no partial result.
  const std::uint32_t each = (plan.reduced.count + plan.splits - 1) / plan.splits;
  if (each > 0) plan.splits = (plan.reduced.count + each - 1) / each;
  const bool split = plan.splits > 1;
  const Scratch scratch(split ? sizeof(A) * plan.splits * plan.kept.count : 0, stream);
  const auto partial = static_cast<A*>(scratch.data());
  Ends<op, T, Out> ends{arguments.out.as<Out>(), arguments.in.as<T>(), partial,
                        static_cast<A>(plan.reduced.count), arguments.accumulate};
  const std::uint32_t outputs = plan.kept.count, terms = plan.reduced.count;
  if (plan.along_rows && terms <= most_terms_of_warp) {
    const std::uint32_t lanes = std::bit_ceil(std::clamp<std::uint32_t>(terms, 1, warp_size));
    launch(stream, dim3(grid_for(outputs, static_cast<int>(block_threads / lanes))),
           dim3(block_threads), 0, reduce_short_rows_kernel<op, T, Out>, plan, ends, lanes);
  } else if (plan.along_rows)
    launch(stream, dim3(outputs < 65535 ? outputs : 65535, plan.splits), dim3(block_threads), 0,
           reduce_rows_kernel<op, T, Out>, plan, ends);
  else
    launch(stream, dim3(grid_for(outputs, block_width), plan.splits),
           dim3(block_width, block_height), 0, reduce_columns_kernel<op, T, Out>, plan, ends);
  if (!split) return;
  ends.partial = nullptr;
  launch(stream, dim3(grid_for(outputs, block_threads)), dim3(block_threads), 0,
         finish_kernel<op, T, Out>, plan, ends, static_cast<const A*>(partial));
}

template <ReduceOp op>
void run_op(const char* name, const kernels::ReduceArguments& arguments, StreamRef stream) {
  constexpr bool integers = traits(op).integers, widens = traits(op).widens;
  const DType out = arguments.out.dtype, in = arguments.in.dtype;
  const auto typed = [&]<class T>(TypeTag<T>) {
    if constexpr (widens)
      if (out != in && out == dtype_of<AccumulateType<T>>)
        return run<op, T, AccumulateType<T>>(arguments, stream);
    LOCKSTEP_CHECK(out == in, Unsupported, name, ": dtype ", in, " into ", out,
                   " is not offered on device ", stream.device);
    // Bytes and bool are counted in i64 only.
    if constexpr (sizeof(T) > 1) run<op, T, T>(arguments, stream);
  };
  if constexpr (integers) {
    if (in == DType::i64) return typed(TypeTag<std::int64_t>{});
    if (in == DType::i32) return typed(TypeTag<std::int32_t>{});
  }
  if constexpr (integers && widens) {
    const bool counted = out == DType::i64;
    if (in == DType::u8 && counted) return typed(TypeTag<std::uint8_t>{});
    if (in == DType::boolean && counted) return typed(TypeTag<bool>{});
  }
  dispatch_floating(in, name, typed);
}

/// What a reduction over no elements gives.
void reduce_nothing(const kernels::ReduceArguments& a, StreamRef stream) {
  const double value = traits(a.op).of_nothing(a.in.shape);
  if (!a.accumulate) elementwise::fill({.out = a.out, .value = value}, stream);
}

}  // namespace

// Where nothing is reduced no grid runs.
void reduction::reduce(const kernels::ReduceArguments& arguments, StreamRef stream) {
  if (arguments.out.numel() == 0) return;
  if (arguments.in.numel() == 0) return reduce_nothing(arguments, stream);
  switch (arguments.op) {
#define LOCKSTEP_REDUCE_OP(name, ...) \
  case ReduceOp::name:                \
    return run_op<ReduceOp::name>(#name, arguments, stream);
#include "functional/ops.def"
  }
}
}  // namespace lockstep::cuda_kernels
