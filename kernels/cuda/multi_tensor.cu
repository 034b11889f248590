#include "cuda/chunk_table.hpp"
#include "cuda/multi_tensor.hpp"
#include "cuda/row_access.hpp"

namespace lockstep::cuda_kernels {
namespace {

constexpr int threads = 256;

__device__ bool is_wide(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

/// Adam's and SGD's elements of one chunk: T is the dtype of parameters and gradients, S that of
/// the states. `Rule` says how many states it has and updates one element.
template <class T, class S, class Rule>
__global__ void __launch_bounds__(threads)
    update_kernel(const __grid_constant__ ChunkTable<5> table, Rule rule) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T, S>;
  const int tensor = table.tensor[blockIdx.x];
  T* const parameter = static_cast<T*>(table.array[0][tensor]);
  const T* const gradient = static_cast<const T*>(table.array[1][tensor]);
  S* const state[] = {static_cast<S*>(table.array[2][tensor]),
                      static_cast<S*>(table.array[3][tensor]),
                      static_cast<S*>(table.array[4][tensor])};
  const std::int64_t last = table.last(blockIdx.x);
  bool aligned = is_wide(parameter) && is_wide(gradient);
  for (int k = 0; k < Rule::states; ++k) aligned = aligned && is_wide(state[k]);
  for (std::int64_t at = table.first(blockIdx.x) + threadIdx.x * N; at < last; at += threads * N) {
    const bool wide = aligned && at + N <= last;
    auto p = load_row<N>(parameter, at, last, wide);
    const auto g = load_row<N>(gradient, at, last, wide);
    Lanes<S, N> s[3] = {};
    LOCKSTEP_UNROLL
    for (int k = 0; k < Rule::states; ++k) s[k] = load_row<N>(state[k], at, last, wide);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) {
      A first = static_cast<A>(s[0].value[j]);
      A second = static_cast<A>(s[1].value[j]);
      A largest = static_cast<A>(s[2].value[j]);
      rule(p.value[j], g.value[j], first, second, largest);
      s[0].value[j] = first;
      s[1].value[j] = second;
      s[2].value[j] = largest;
    }
    store_row<N>(parameter, at, last, wide, p);
    LOCKSTEP_UNROLL
    for (int k = 0; k < Rule::states; ++k) store_row<N>(state[k], at, last, wide, s[k]);
  }
}

template <class A, bool has_momentum>
struct Sgd {
  static constexpr int states = has_momentum ? 1 : 0;
  functional::SgdRule<A, has_momentum> rule;
  __device__ void operator()(A& p, A g, A& first, A&, A&) const { rule(p, g, first); }
};

template <class A, bool amsgrad>
struct Adam {
  static constexpr int states = amsgrad ? 3 : 2;
  functional::AdamRule<A, amsgrad> rule;
  __device__ void operator()(A& p, A g, A& first, A& second, A& largest) const {
    rule(p, g, first, second, largest);
  }
};

template <class T, class S, class Rule>
void update(std::span<const OptimizerArrays> list, const Rule& rule, StreamRef stream) {
  for_each_table<5>(
      list.size(), [&](std::size_t i, int k) -> const ArrayView& { return list[i][k]; },
      [&](const ChunkTable<5>& table, unsigned blocks) {
        launch(stream, blocks, threads, 0, update_kernel<T, S, Rule>, table, rule);
      });
}

/// @throws Unsupported if an array of the run has another dtype than its first tensor's.
void check_run(std::span<const OptimizerArrays> run, DType state) {
  for (const OptimizerArrays& each : run) {
    LOCKSTEP_CHECK(each[1].dtype == each[0].dtype, Unsupported, "optimizer: a ", each[1].dtype,
                   " gradient of a ", each[0].dtype, " parameter on device cuda");
    for (int k = 2; k < 5; ++k)
      LOCKSTEP_CHECK(!each[k] || each[k].dtype == state, Unsupported, "optimizer: ", each[k].dtype,
                     " state beside ", state, " state on device cuda");
    for (const ArrayView& view : each)
      LOCKSTEP_CHECK(!view || (view.is_contiguous() && view.numel() == each[0].numel()),
                     InvalidArgument, "optimizer: arrays must be contiguous and of one size, got ",
                     view.shape, " with strides ", view.strides);
  }
}

/// Calls `visit(run, TypeTag<T>, TypeTag<S>)` for runs of neighbours with the same dtypes.
template <class Visitor>
void for_each_run(std::span<const OptimizerArrays> list, const Visitor& visit) {
  const auto state_of = [](const OptimizerArrays& each) {
    return each[2] ? each[2].dtype : each[0].dtype;
  };
  for (std::size_t first = 0; first < list.size();) {
    const DType dtype = list[first][0].dtype;
    const DType state = state_of(list[first]);
    std::size_t last = first + 1;
    while (last < list.size() && list[last][0].dtype == dtype && state_of(list[last]) == state)
      ++last;
    const auto run = list.subspan(first, last - first);
    check_run(run, state);
    dispatch_floating(dtype, "optimizer", [&]<class T>(TypeTag<T>) {
      using A = AccumulateType<T>;
      if (state == dtype) return visit(run, TypeTag<T>{}, TypeTag<T>{});
      LOCKSTEP_CHECK(state == dtype_of<A>, Unsupported, "optimizer: ", state, " state of ", dtype,
                     " parameters on device cuda");
      if constexpr (!std::is_same_v<T, A>) visit(run, TypeTag<T>{}, TypeTag<A>{});
    });
    first = last;
  }
}

template <class T>
__global__ void __launch_bounds__(threads)
    square_sum_kernel(const __grid_constant__ ChunkTable<1> table, double* partial) {
  constexpr int N = lanes_of<T>;
  const T* const data = static_cast<const T*>(table.array[0][table.tensor[blockIdx.x]]);
  const std::int64_t last = table.last(blockIdx.x);
  const bool aligned = is_wide(data);
  AccumulateType<T> sum = 0;
  for (std::int64_t at = table.first(blockIdx.x) + threadIdx.x * N; at < last; at += threads * N) {
    const auto x = load_row<N>(data, at, last, aligned && at + N <= last);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) sum += x.value[j] * x.value[j];
  }
  const double total = BlockGroup{}.reduce(static_cast<double>(sum), Sum{});
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(threads)
    add_partials_kernel(double* out, const double* partial, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += threads) sum += partial[i];
  sum = BlockGroup{}.reduce(sum, Sum{});
  if (threadIdx.x == 0) *out = sum;
}

template <class T>
__global__ void __launch_bounds__(threads) clip_kernel(const __grid_constant__ ChunkTable<1> table,
                                                       const double* square_sum, double limit) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T>;
  const double factor = limit / (functional::math::sqrt(*square_sum) + 1e-6);
  if (factor >= 1.0) return;
  const A scale = static_cast<A>(factor);
  T* const data = static_cast<T*>(table.array[0][table.tensor[blockIdx.x]]);
  const std::int64_t last = table.last(blockIdx.x);
  const bool aligned = is_wide(data);
  for (std::int64_t at = table.first(blockIdx.x) + threadIdx.x * N; at < last; at += threads * N) {
    const bool wide = aligned && at + N <= last;
    auto x = load_row<N>(data, at, last, wide);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) x.value[j] *= scale;
    store_row<N>(data, at, last, wide, x);
  }
}

/// Calls `launch_table(table, blocks, TypeTag<T>)` for runs of neighbours with one dtype.
template <class Launch>
void for_each_array_table(std::span<const ArrayView> arrays, const char* op,
                          const Launch& launch_table) {
  for (std::size_t first = 0; first < arrays.size();) {
    std::size_t last = first + 1;
    while (last < arrays.size() && arrays[last].dtype == arrays[first].dtype) ++last;
    const auto run = arrays.subspan(first, last - first);
    dispatch_floating(run[0].dtype, op, [&]<class T>(TypeTag<T> tag) {
      for_each_table<1>(
          run.size(), [&](std::size_t i, int) -> const ArrayView& { return run[i]; },
          [&](const ChunkTable<1>& table, unsigned blocks) { launch_table(table, blocks, tag); });
    });
    first = last;
  }
}

}  // namespace

void sgd(std::span<const OptimizerArrays> list, const SgdCoefficients& c, StreamRef stream) {
  for_each_run(list, [&]<class T, class S>(const auto& run, TypeTag<T>, TypeTag<S>) {
    using A = AccumulateType<T>;
    if (c.momentum != 0)
      update<T, S>(run, Sgd<A, true>{functional::SgdRule<A, true>(c)}, stream);
    else
      update<T, S>(run, Sgd<A, false>{functional::SgdRule<A, false>(c)}, stream);
  });
}

void adam(std::span<const OptimizerArrays> list, const AdamCoefficients& c, StreamRef stream) {
  for_each_run(list, [&]<class T, class S>(const auto& run, TypeTag<T>, TypeTag<S>) {
    using A = AccumulateType<T>;
    if (run[0][4])
      update<T, S>(run, Adam<A, true>{functional::AdamRule<A, true>(c)}, stream);
    else
      update<T, S>(run, Adam<A, false>{functional::AdamRule<A, false>(c)}, stream);
  });
}

std::size_t square_sum_scratch_bytes(std::span<const ArrayView> arrays) {
  std::int64_t chunks = 0;
  for (const ArrayView& array : arrays) chunks += chunks_of(array.numel());
  return static_cast<std::size_t>(chunks) * sizeof(double);
}

void square_sum(const ArrayView& out, std::span<const ArrayView> arrays, void* scratch,
                StreamRef stream) {
  auto* const partial = static_cast<double*>(scratch);
  std::int64_t used = 0;
  for_each_array_table(
      arrays, "square_sum", [&]<class T>(const ChunkTable<1>& table, unsigned blocks, TypeTag<T>) {
        launch(stream, blocks, threads, 0, square_sum_kernel<T>, table, partial + used);
        used += blocks;
      });
  launch(stream, 1, threads, 0, add_partials_kernel, out.as<double>(), partial, used);
}

void clip(std::span<const ArrayView> arrays, const ArrayView& square_sum, double limit,
          StreamRef stream) {
  for_each_array_table(
      arrays, "clip", [&]<class T>(const ChunkTable<1>& table, unsigned blocks, TypeTag<T>) {
        launch(stream, blocks, threads, 0, clip_kernel<T>, table, square_sum.as<double>(), limit);
      });
}

}  // namespace lockstep::cuda_kernels
