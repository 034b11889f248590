#include <algorithm>
#include <utility>

#include "cuda/chunk_table.hpp"
#include "cuda/multi_tensor.hpp"
#include "cuda/row_access.hpp"

namespace lockstep::cuda_kernels {
namespace {

using kernels::OptimizerTensors;

constexpr int threads = 256;

__device__ bool is_wide(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

/// Where each of some tensors counts its steps.
struct StepCounts {
  static constexpr int most = 256;
  std::int64_t* steps[most];
  int count;
};

/// Counts a step of each tensor, and leaves what its elements are to be multiplied with.
template <class Rule>
__global__ void __launch_bounds__(StepCounts::most)
    begin_step_kernel(const __grid_constant__ StepCounts counts,
                      kernels::OptimizerArguments<Rule> arguments,
                      typename Rule::Coefficients* coefficients) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= counts.count || arguments.state.skips()) return;
  const std::int64_t step = *counts.steps[i] + 1;
  coefficients[i] = arguments.coefficients(step);
  *counts.steps[i] = step;
}

template <class Rule>
void begin_step(kernels::OptimizerArguments<Rule> arguments,
                typename Rule::Coefficients* coefficients, StreamRef stream) {
  const auto tensors = std::exchange(arguments.tensors, {});
  for (std::size_t first = 0; first < tensors.size(); first += StepCounts::most) {
    StepCounts counts{};
    counts.count =
        static_cast<int>(std::min<std::size_t>(StepCounts::most, tensors.size() - first));
    for (int i = 0; i < counts.count; ++i)
      counts.steps[i] = tensors[first + static_cast<std::size_t>(i)].steps;
    launch(stream, 1, StepCounts::most, 0, begin_step_kernel<Rule>, counts, arguments,
           coefficients + first);
  }
}

/// The elements of one chunk: T is the dtype of parameters and gradients; the states, k of them for
/// k = 0, 1 ..., and master copies are in its accumulation type. What is updated is the master copy
/// where there is one, and the parameter then gets its rounded value.
template <class T, class Coefficients, bool has_master, int... k>
__global__ void __launch_bounds__(threads)
    update_kernel(const __grid_constant__ ChunkTable<6> table, const Coefficients* coefficients,
                  kernels::StepState step) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T, A>;
  if (step.skips()) return;
  const int tensor = table.tensor[blockIdx.x];
  const Coefficients c = coefficients[table.index[tensor]];
  T* const parameter = static_cast<T*>(table.array[0][tensor]);
  const T* const gradient = static_cast<const T*>(table.array[1][tensor]);
  [[maybe_unused]] A* const state[] = {static_cast<A*>(table.array[2][tensor]),
                                       static_cast<A*>(table.array[3][tensor]),
                                       static_cast<A*>(table.array[4][tensor])};
  A* const master = static_cast<A*>(table.array[5][tensor]);
  const std::int64_t last = table.last(blockIdx.x);
  bool aligned = is_wide(parameter) && is_wide(gradient) && (!has_master || is_wide(master));
  ((aligned = aligned && is_wide(state[k])), ...);
  for (std::int64_t at = table.first(blockIdx.x) + threadIdx.x * N; at < last; at += threads * N) {
    const bool wide = aligned && at + N <= last;
    Pack<A, N> p = {};
    Pack<A, N> m = {};
    if constexpr (has_master)
      m = load_row<N>(master, at, last, wide);
    else
      p = load_row<N>(parameter, at, last, wide);
    const auto g = load_row<N>(gradient, at, last, wide);
    [[maybe_unused]] Pack<A, N> s[most_optimizer_states] = {};
    ((s[k] = load_row<N>(state[k], at, last, wide)), ...);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) {
      A value = has_master ? m[j] : p[j];
      functional::update<A>(c, value, g[j], s[k][j]...);
      p[j] = value;
      m[j] = value;
    }
    store_row<N>(parameter, at, last, wide, p);
    if constexpr (has_master) store_row<N>(master, at, last, wide, m);
    (store_row<N>(state[k], at, last, wide, s[k]), ...);
  }
}

/// The k-th array of a tensor, in the order in which update_kernel takes them.
const ArrayView& array_of(const OptimizerTensors& tensors, int k) {
  const ArrayView* const arrays[] = {&tensors.parameter, &tensors.gradient, &tensors.state1,
                                     &tensors.state2,    &tensors.state3,   &tensors.master};
  return *arrays[k];
}

/// Only the states that the rule uses need to fit.
/// @throws InvalidArgument or Unsupported if an array does not fit its parameter.
void check_arrays(const OptimizerTensors& tensors, int states, DType wide) {
  const ArrayView& parameter = tensors.parameter;
  LOCKSTEP_CHECK(tensors.gradient.dtype == parameter.dtype, Unsupported, "optimizer: a ",
                 tensors.gradient.dtype, " gradient of a ", parameter.dtype,
                 " parameter on device cuda");
  for (int k = 0; k < 6; ++k) {
    const ArrayView& view = array_of(tensors, k);
    const bool is_state = k >= 2 && k < 5;
    if (is_state ? k >= 2 + states : !view) continue;
    LOCKSTEP_CHECK(view, InvalidArgument, "optimizer: state ", k - 1, " of ", states, " is absent");
    LOCKSTEP_CHECK(k < 2 || view.dtype == wide, InvalidArgument, "optimizer: ", view.dtype,
                   " state of a ", parameter.dtype, " parameter; it must be ", wide);
    LOCKSTEP_CHECK(view.is_contiguous() && view.numel() == parameter.numel(), InvalidArgument,
                   "optimizer: arrays must be contiguous and of one size, got ", view.shape,
                   " with strides ", view.strides);
  }
}

template <class T, class Coefficients, bool has_master, int... k>
void launch_updates(std::span<const OptimizerTensors> run, const Coefficients* coefficients,
                    const kernels::StepState& state, StreamRef stream) {
  for_each_table<6>(
      run.size(), [&](std::size_t i, int n) -> const ArrayView& { return array_of(run[i], n); },
      [&](const ChunkTable<6>& table, unsigned blocks) {
        launch(stream, blocks, threads, 0, update_kernel<T, Coefficients, has_master, k...>, table,
               coefficients, state);
      });
}

/// Calls `use.operator()<0, 1 ...>()` with as many numbers as the rule has states.
template <class Rule, int states = Rule::least_states, class Use>
void with_states(const Rule& rule, const Use& use) {
  if constexpr (states < Rule::most_states)
    if (rule.states() > states) return with_states<Rule, states + 1>(rule, use);
  [&]<int... k>(std::integer_sequence<int, k...>) { use.template operator()<k...>(); }
  (std::make_integer_sequence<int, states>());
}

/// Calls `use(run, first, TypeTag<T>, has_master)` for neighbours that have one dtype, with master
/// copies or without.
template <class Use>
void for_each_run(std::span<const OptimizerTensors> list, const Use& use) {
  for (std::size_t first = 0; first < list.size();) {
    const DType dtype = list[first].parameter.dtype;
    const bool has_master = static_cast<bool>(list[first].master);
    std::size_t last = first;
    while (last < list.size() && list[last].parameter.dtype == dtype &&
           static_cast<bool>(list[last].master) == has_master)
      ++last;
    const auto run = list.subspan(first, last - first);
    dispatch_floating(dtype, "optimizer",
                      [&]<class T>(TypeTag<T> tag) { use(run, first, tag, has_master); });
    first = last;
  }
}

/// One step of all tensors.
template <class Rule>
void update(const kernels::OptimizerArguments<Rule>& arguments, void* scratch, StreamRef stream) {
  using Coefficients = typename Rule::Coefficients;
  const int states = arguments.rule.states();
  for_each_run(arguments.tensors, [&]<class T>(auto run, std::size_t, TypeTag<T>, bool has_master) {
    using A = AccumulateType<T>;
    for (const OptimizerTensors& each : run) check_arrays(each, states, dtype_of<A>);
    LOCKSTEP_CHECK(!has_master || (!std::is_same_v<T, A>), InvalidArgument, "optimizer: a ",
                   dtype_of<T>, " parameter needs no master copy");
  });
  auto* const coefficients = static_cast<Coefficients*>(scratch);
  begin_step(arguments, coefficients, stream);
  with_states(
      arguments.rule, [&]<int... k>() {
        for_each_run(arguments.tensors, [&]<class T>(auto run, std::size_t first, TypeTag<T>,
                                                     bool has_master) {
          const auto* const own = coefficients + first;
          if (!has_master)
            return launch_updates<T, Coefficients, false, k...>(run, own, arguments.state, stream);
          if constexpr (!std::is_same_v<T, AccumulateType<T>>)
            launch_updates<T, Coefficients, true, k...>(run, own, arguments.state, stream);
        });
      });
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
    for (int j = 0; j < N; ++j) sum += x[j] * x[j];
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

/// What clipping multiplies gradients with. NaN stays: it must not pass for a small norm.
struct ClipFactor {
  const double* square_sum;
  double limit;
  __device__ double operator()() const {
    const double factor = limit / (functional::math::sqrt(*square_sum) + 1e-6);
    return factor >= 1.0 ? 1.0 : factor;
  }
};

struct Inverse {
  const double* number;
  __device__ double operator()() const { return 1.0 / *number; }
};

template <class T, class Factor>
__global__ void __launch_bounds__(threads)
    scale_kernel(const __grid_constant__ ChunkTable<1> table, Factor factor) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T>;
  const A scale = static_cast<A>(factor());
  if (scale == A(1)) return;
  T* const data = static_cast<T*>(table.array[0][table.tensor[blockIdx.x]]);
  const std::int64_t last = table.last(blockIdx.x);
  const bool aligned = is_wide(data);
  for (std::int64_t at = table.first(blockIdx.x) + threadIdx.x * N; at < last; at += threads * N) {
    const bool wide = aligned && at + N <= last;
    auto x = load_row<N>(data, at, last, wide);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) x[j] *= scale;
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

template <class Factor>
void scale_all(std::span<const ArrayView> arrays, const char* op, const Factor& factor,
               StreamRef stream) {
  for_each_array_table(arrays, op,
                       [&]<class T>(const ChunkTable<1>& table, unsigned blocks, TypeTag<T>) {
                         launch(stream, blocks, threads, 0, scale_kernel<T, Factor>, table, factor);
                       });
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

#define LOCKSTEP_OPTIMIZER(name, Rule)                                                             \
  void name(const kernels::OptimizerArguments<Rule>& arguments, void* scratch, StreamRef stream) { \
    update(arguments, scratch, stream);                                                            \
  }
LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER

std::size_t square_sum_scratch_bytes(const kernels::SquareSumArguments& arguments) {
  std::int64_t chunks = 0;
  for (const ArrayView& array : arguments.arrays) chunks += chunks_of(array.numel());
  return static_cast<std::size_t>(chunks) * sizeof(double);
}

void square_sum(const kernels::SquareSumArguments& arguments, void* scratch, StreamRef stream) {
  auto* const partial = static_cast<double*>(scratch);
  std::int64_t used = 0;
  for_each_array_table(arguments.arrays, "square_sum",
                       [&]<class T>(const ChunkTable<1>& table, unsigned blocks, TypeTag<T>) {
                         launch(stream, blocks, threads, 0, square_sum_kernel<T>, table,
                                partial + used);
                         used += blocks;
                       });
  launch(stream, 1, threads, 0, add_partials_kernel, arguments.out.as<double>(), partial, used);
}

void clip(const kernels::ClipArguments& arguments, StreamRef stream) {
  scale_all(arguments.arrays, "clip",
            ClipFactor{arguments.square_sum.as<double>(), arguments.limit}, stream);
}

void divide(const kernels::DivideArguments& arguments, StreamRef stream) {
  scale_all(arguments.arrays, "divide", Inverse{arguments.divisor.as<double>()}, stream);
}

void update_loss_scale(const kernels::LossScaleArguments& arguments, StreamRef stream) {
  launch(stream, 1, 1, 0, update_loss_scale_kernel, arguments.scale.as<double>(),
         arguments.finite_steps.as<std::int64_t>(), arguments.skipped_steps.as<std::int64_t>(),
         arguments.found_inf.as<double>(), arguments.rule);
}

}  // namespace lockstep::cuda_kernels
