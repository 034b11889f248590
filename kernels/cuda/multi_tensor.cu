#include "arguments/multi_tensor.hpp"
#include "cuda/chunk_table.hpp"
#include "cuda/row_access.hpp"
#include "cuda/scratch.hpp"
#include "functional/average.hpp"
#include "functional/fingerprint.hpp"
#include "functional/math.hpp"

namespace lockstep::cuda_kernels {
namespace {

constexpr int threads = 256;

/// What elements are multiplied with before they are squared.
struct Unchanged {};

struct Inverse {
  const double* number;
  __device__ double operator()() const { return 1.0 / *number; }
};

using functional::SquareSum;

/// Sums of squares of chunks.
template <class T, class Factor>
__global__ void __launch_bounds__(threads)
    square_sum_kernel(LOCKSTEP_GRID_CONSTANT(ChunkTable<1>) table, SquareSum* partial,
                      Factor factor) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T>;
  constexpr bool changes = !std::is_same_v<Factor, Unchanged>;
  const int tensor = table.tensor_of(blockIdx.x);
  T* const data = static_cast<T*>(table.array[0][tensor]);
  const std::int64_t first = table.first(tensor, blockIdx.x) + threadIdx.x * N;
  const std::int64_t last = table.last(tensor, blockIdx.x);
  const bool aligned = is_aligned(data);
  [[maybe_unused]] A scale = 1;
  if constexpr (changes) scale = static_cast<A>(factor());
  A sum = 0;
  for (std::int64_t at = first; at < last; at += threads * N) {
    const bool wide = aligned && at + N <= last;
    auto x = load_row<N>(data, at, last, wide);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) {
      if constexpr (changes) x[j] *= scale;
      sum += x[j] * x[j];
    }
    if constexpr (changes) store_row<N>(data, at, last, wide, x);
  }
  SquareSum total{BlockGroup{}.reduce(static_cast<double>(sum), Sum{}), 0};
  if (functional::is_unbounded(total.plain)) {  // so rare that a second look costs nothing
    SquareSum again;
    for (std::int64_t at = first; at < last; at += threads * N) {
      const auto x = load_row<N>(data, at, last, aligned && at + N <= last);
      for (int j = 0; j < N; ++j) {
        const auto value = static_cast<double>(x[j]);
        again += {value * value, functional::large_square(value)};
      }
    }
    const double plain = BlockGroup{}.reduce(again.plain, Sum{});
    total = functional::square_sum_of_chunk(plain, BlockGroup{}.reduce(again.large, Sum{}));
  }
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(threads)
    add_partials_kernel(SquareSum* out, const SquareSum* partial, std::int64_t count) {
  SquareSum sum;
  for (std::int64_t i = threadIdx.x; i < count; i += threads) sum += partial[i];
  sum.plain = BlockGroup{}.reduce(sum.plain, Sum{});
  sum.large = BlockGroup{}.reduce(sum.large, Sum{});
  if (threadIdx.x == 0) *out = sum;
}

template <class T>
__global__ void __launch_bounds__(threads)
    clip_kernel(LOCKSTEP_GRID_CONSTANT(ChunkTable<1>) table, const double* norm, double limit) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T>;
  const A scale = static_cast<A>(functional::clip_factor(*norm, limit));
  if (scale == A(1)) return;
  const int tensor = table.tensor_of(blockIdx.x);
  T* const data = static_cast<T*>(table.array[0][tensor]);
  const std::int64_t last = table.last(tensor, blockIdx.x);
  const bool aligned = is_aligned(data);
  for (std::int64_t at = table.first(tensor, blockIdx.x) + threadIdx.x * N; at < last;
       at += threads * N) {
    const bool wide = aligned && at + N <= last;
    auto x = load_row<N>(data, at, last, wide);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) x[j] *= scale;
    store_row<N>(data, at, last, wide, x);
  }
}

/// Adds the fingerprints of chunks to those of their arrays: in any order, for sums wrap around.
template <class Bits>
__global__ void __launch_bounds__(threads)
    fingerprint_kernel(LOCKSTEP_GRID_CONSTANT(ChunkTable<1>) table, unsigned long long* out) {
  const int tensor = table.tensor_of(blockIdx.x);
  const Bits* const bits = static_cast<const Bits*>(table.array[0][tensor]);
  const std::int64_t last = table.last(tensor, blockIdx.x);
  std::uint64_t sum = 0;
  for (std::int64_t i = table.first(tensor, blockIdx.x) + threadIdx.x; i < last; i += threads)
    sum += functional::fingerprint_of(bits[i], i);
  sum = BlockGroup{}.reduce(sum, Sum{});
  if (threadIdx.x == 0) atomicAdd(out + table.first_tensor + tensor, sum);
}

/// T is the dtype of the values; averages are in its accumulation type.
template <class T>
__global__ void __launch_bounds__(threads)
    average_kernel(LOCKSTEP_GRID_CONSTANT(ChunkTable<2>) table, double share) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T, A>;
  const int tensor = table.tensor_of(blockIdx.x);
  A* const average = static_cast<A*>(table.array[0][tensor]);
  const T* const value = static_cast<const T*>(table.array[1][tensor]);
  const std::int64_t last = table.last(tensor, blockIdx.x);
  const bool aligned = is_aligned(average) && is_aligned(value);
  for (std::int64_t at = table.first(tensor, blockIdx.x) + threadIdx.x * N; at < last;
       at += threads * N) {
    const bool wide = aligned && at + N <= last;
    auto a = load_row<N>(average, at, last, wide);
    const auto v = load_row<N>(value, at, last, wide);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) a[j] = functional::averaged(a[j], v[j], static_cast<A>(share));
    store_row<N>(average, at, last, wide, a);
  }
}

/// T is the dtype that f32 is rounded to.
template <class T>
__global__ void __launch_bounds__(threads)
    round_kernel(LOCKSTEP_GRID_CONSTANT(ChunkTable<2>) table) {
  constexpr int N = lanes_of<T, float>;
  const int tensor = table.tensor_of(blockIdx.x);
  T* const out = static_cast<T*>(table.array[0][tensor]);
  const float* const in = static_cast<const float*>(table.array[1][tensor]);
  const std::int64_t last = table.last(tensor, blockIdx.x);
  const bool aligned = is_aligned(out) && is_aligned(in);
  for (std::int64_t at = table.first(tensor, blockIdx.x) + threadIdx.x * N; at < last;
       at += threads * N) {
    const bool wide = aligned && at + N <= last;
    store_row<N>(out, at, last, wide, load_row<N>(in, at, last, wide));
  }
}

/// @throws InvalidArgument unless one may be rounded to the other.
void check_rounded(const ArrayView& out, DType dtype, const ArrayView& in) {
  LOCKSTEP_CHECK(
      (dtype == DType::bf16 || dtype == DType::f16) && out.dtype == dtype &&
          in.dtype == DType::f32 && out.is_contiguous() && in.is_contiguous() &&
          out.numel() == in.numel(),
      InvalidArgument, "round: ", in.dtype, " of shape ", in.shape, " to ", out.dtype, " of shape ",
      out.shape,
      "; they must be contiguous, of one size, from f32 to bf16 or f16, the same for all");
}

/// @throws InvalidArgument unless an average fits its value.
void check_average(const ArrayView& average, const ArrayView& value) {
  LOCKSTEP_CHECK(
      average.dtype == (value.dtype == DType::f64 ? DType::f64 : DType::f32) &&
          average.is_contiguous() && value.is_contiguous() && average.numel() == value.numel(),
      InvalidArgument, "average: ", average.dtype, " of shape ", average.shape, " of ", value.dtype,
      " of shape ", value.shape, "; both must be contiguous, of one size, and the average wide");
}

/// Calls `visit(run)` for runs of neighbours with one dtype.
template <class Visit>
void for_each_run(std::span<const ArrayView> arrays, const Visit& visit) {
  for (std::size_t first = 0; first < arrays.size();) {
    std::size_t last = first + 1;
    while (last < arrays.size() && arrays[last].dtype == arrays[first].dtype) ++last;
    visit(arrays.subspan(first, last - first));
    first = last;
  }
}

/// Calls `launch_table(table, blocks)` for tables of arrays of one dtype.
template <class Launch>
void for_each_table_of(std::span<const ArrayView> run, const Launch& launch_table) {
  for_each_table<1>(
      run.size(), [&](std::size_t i, int) { return run[i].data; },
      [&](std::size_t i) { return run[i].numel(); }, launch_table);
}

/// Calls `launch_table(table, blocks, TypeTag<T>)` for runs of neighbours with one floating dtype.
template <class Launch>
void for_each_array_table(std::span<const ArrayView> arrays, const char* op,
                          const Launch& launch_table) {
  for_each_run(arrays, [&](std::span<const ArrayView> run) {
    dispatch_floating(run[0].dtype, op, [&]<class T>(TypeTag<T> tag) {
      for_each_table_of(run, [&](const ChunkTable<1>& table, unsigned blocks) {
        launch_table(table, blocks, tag);
      });
    });
  });
}

/// out = sum of squares over all arrays, each element times a factor, which is kept.
template <class Factor>
void square_sum_of(std::span<const ArrayView> arrays, const char* op, const Factor& factor,
                   const ArrayView& out, StreamRef stream) {
  std::int64_t chunks = 0;
  for (const ArrayView& array : arrays) chunks += chunks_of(array.numel());
  const Scratch scratch(static_cast<std::size_t>(chunks) * sizeof(SquareSum), stream);
  auto* const partial = static_cast<SquareSum*>(scratch.data());
  std::int64_t used = 0;
  for_each_array_table(arrays, op,
                       [&]<class T>(const ChunkTable<1>& table, unsigned blocks, TypeTag<T>) {
                         launch(stream, blocks, threads, 0, square_sum_kernel<T, Factor>, table,
                                partial + used, factor);
                         used += blocks;
                       });
  launch(stream, 1, threads, 0, add_partials_kernel, out.as<SquareSum>(), partial, used);
}

/// @param loss_scale may be null.
__global__ void gradient_scaling_kernel(const SquareSum* square_sum, const double* loss_scale,
                                        double limit, double* norm, double* divisor,
                                        double* found_inf) {
  const auto scaling =
      functional::measure_gradients(*square_sum, loss_scale ? *loss_scale : 1.0, limit);
  *norm = scaling.norm;
  *divisor = scaling.divisor;
  *found_inf = scaling.found_inf;
}

__global__ void update_loss_scale_kernel(double* scale, std::int64_t* finite_steps,
                                         std::int64_t* skipped_steps, const double* found_inf,
                                         LossScaleRule rule) {
  const LossScale next =
      functional::next_loss_scale(rule, {*scale, *finite_steps, *skipped_steps}, *found_inf != 0);
  *scale = next.value;
  *finite_steps = next.finite_steps;
  *skipped_steps = next.skipped_steps;
}

}  // namespace

void multi_tensor::square_sum(const kernels::SquareSumArguments& arguments, StreamRef stream) {
  square_sum_of(arguments.arrays, "square_sum", Unchanged{}, arguments.out, stream);
}

void multi_tensor::average(const kernels::AverageArguments& arguments, StreamRef stream) {
  const auto averages = arguments.averages, values = arguments.values;
  for (std::size_t i = 0; i < averages.size(); ++i) check_average(averages[i], values[i]);
  for (std::size_t first = 0; first < values.size();) {
    const DType dtype = values[first].dtype;
    std::size_t last = first;
    while (last < values.size() && values[last].dtype == dtype) ++last;
    dispatch_floating(dtype, "average", [&]<class T>(TypeTag<T>) {
      for_each_table<2>(
          last - first,
          [&](std::size_t i, int k) { return (k == 0 ? averages : values)[first + i].data; },
          [&](std::size_t i) { return values[first + i].numel(); },
          [&](const ChunkTable<2>& table, unsigned blocks) {
            launch(stream, blocks, threads, 0, average_kernel<T>, table, arguments.share);
          });
    });
    first = last;
  }
}

void multi_tensor::round(const kernels::RoundArguments& arguments, StreamRef stream) {
  const auto outs = arguments.outs, ins = arguments.ins;
  if (outs.empty()) return;
  const DType dtype = outs[0].dtype;
  for (std::size_t i = 0; i < outs.size(); ++i) check_rounded(outs[i], dtype, ins[i]);
  const auto launch_all = [&](auto kernel) {
    for_each_table<2>(
        outs.size(), [&](std::size_t i, int k) { return (k == 0 ? outs : ins)[i].data; },
        [&](std::size_t i) { return ins[i].numel(); },
        [&](const ChunkTable<2>& table, unsigned blocks) {
          launch(stream, blocks, threads, 0, kernel, table);
        });
  };
  dtype == DType::bf16 ? launch_all(round_kernel<BFloat16>) : launch_all(round_kernel<Half>);
}

void multi_tensor::clip(const kernels::ClipArguments& arguments, StreamRef stream) {
  for_each_array_table(arguments.arrays, "clip",
                       [&]<class T>(const ChunkTable<1>& table, unsigned blocks, TypeTag<T>) {
                         launch(stream, blocks, threads, 0, clip_kernel<T>, table,
                                arguments.norm.as<const double>(), arguments.limit);
                       });
}

void multi_tensor::fingerprint(const kernels::FingerprintArguments& arguments, StreamRef stream) {
  auto* out = arguments.out.as<unsigned long long>();
  for_each_run(arguments.arrays, [&](std::span<const ArrayView> run) {
    functional::dispatch_bits(size_of(run[0].dtype), [&]<class Bits>(Bits) {
      for_each_table_of(run, [&](const ChunkTable<1>& table, unsigned blocks) {
        launch(stream, blocks, threads, 0, fingerprint_kernel<Bits>, table, out);
      });
    });
    out += run.size();
  });
}

void multi_tensor::divide(const kernels::DivideArguments& arguments, StreamRef stream) {
  square_sum_of(arguments.arrays, "divide", Inverse{arguments.divisor.as<double>()},
                arguments.square_sum, stream);
}

void multi_tensor::gradient_scaling(const kernels::GradientScalingArguments& arguments,
                                    StreamRef stream) {
  launch(stream, 1, 1, 0, gradient_scaling_kernel, arguments.square_sum.as<const SquareSum>(),
         arguments.loss_scale.as<const double>(), arguments.limit, arguments.norm.as<double>(),
         arguments.divisor.as<double>(), arguments.found_inf.as<double>());
}

void multi_tensor::update_loss_scale(const kernels::LossScaleArguments& arguments,
                                     StreamRef stream) {
  launch(stream, 1, 1, 0, update_loss_scale_kernel, arguments.scale.as<double>(),
         arguments.finite_steps.as<std::int64_t>(), arguments.skipped_steps.as<std::int64_t>(),
         arguments.found_inf.as<double>(), arguments.rule);
}

}  // namespace lockstep::cuda_kernels
