#include <algorithm>
#include <utility>

#include "arguments/optimizer_coefficients.hpp"
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
template <class Arguments, class Coefficients>
__global__ void __launch_bounds__(StepCounts::most)
    begin_step_kernel(const __grid_constant__ StepCounts counts, Arguments arguments,
                      Coefficients* coefficients) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= counts.count || arguments.state.skips()) return;
  const std::int64_t step = *counts.steps[i] + 1;
  coefficients[i] = kernels::coefficients_of(arguments, step);
  *counts.steps[i] = step;
}

template <class Arguments, class Coefficients>
void begin_step(Arguments arguments, Coefficients* coefficients, StreamRef stream) {
  const auto tensors = std::exchange(arguments.tensors, {});
  for (std::size_t first = 0; first < tensors.size(); first += StepCounts::most) {
    StepCounts counts{};
    counts.count =
        static_cast<int>(std::min<std::size_t>(StepCounts::most, tensors.size() - first));
    for (int i = 0; i < counts.count; ++i)
      counts.steps[i] = tensors[first + static_cast<std::size_t>(i)].steps;
    launch(stream, 1, StepCounts::most, 0, begin_step_kernel<Arguments, Coefficients>, counts,
           arguments, coefficients + first);
  }
}

/// Adam's and SGD's elements of one chunk: T is the dtype of parameters and gradients; states and
/// master copies are in its accumulation type. `Rule` says how many states it has and updates one
/// element: of the master copy where there is one, and the parameter then gets its rounded value.
template <class T, class Rule, bool has_master>
__global__ void __launch_bounds__(threads)
    update_kernel(const __grid_constant__ ChunkTable<6> table,
                  const typename Rule::Coefficients* coefficients, kernels::StepState step) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T, A>;
  if (step.skips()) return;
  const int tensor = table.tensor[blockIdx.x];
  const Rule rule(coefficients[table.index[tensor]]);
  T* const parameter = static_cast<T*>(table.array[0][tensor]);
  const T* const gradient = static_cast<const T*>(table.array[1][tensor]);
  A* const state[] = {static_cast<A*>(table.array[2][tensor]),
                      static_cast<A*>(table.array[3][tensor]),
                      static_cast<A*>(table.array[4][tensor])};
  A* const master = static_cast<A*>(table.array[5][tensor]);
  const std::int64_t last = table.last(blockIdx.x);
  bool aligned = is_wide(parameter) && is_wide(gradient) && (!has_master || is_wide(master));
  for (int k = 0; k < Rule::states; ++k) aligned = aligned && is_wide(state[k]);
  for (std::int64_t at = table.first(blockIdx.x) + threadIdx.x * N; at < last; at += threads * N) {
    const bool wide = aligned && at + N <= last;
    Lanes<T, N> p = {};
    Lanes<A, N> m = {};
    if constexpr (has_master)
      m = load_row<N>(master, at, last, wide);
    else
      p = load_row<N>(parameter, at, last, wide);
    const auto g = load_row<N>(gradient, at, last, wide);
    Lanes<A, N> s[3] = {};
    LOCKSTEP_UNROLL
    for (int k = 0; k < Rule::states; ++k) s[k] = load_row<N>(state[k], at, last, wide);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) {
      A value = has_master ? m.value[j] : p.value[j];
      rule(value, g.value[j], s[0].value[j], s[1].value[j], s[2].value[j]);
      p.value[j] = value;
      m.value[j] = value;
    }
    store_row<N>(parameter, at, last, wide, p);
    if constexpr (has_master) store_row<N>(master, at, last, wide, m);
    LOCKSTEP_UNROLL
    for (int k = 0; k < Rule::states; ++k) store_row<N>(state[k], at, last, wide, s[k]);
  }
}

template <class A, bool has_momentum>
struct Sgd {
  using Coefficients = SgdCoefficients;
  static constexpr int states = has_momentum ? 1 : 0;
  functional::SgdRule<A, has_momentum> rule;
  __device__ explicit Sgd(const Coefficients& coefficients) : rule(coefficients) {}
  __device__ void operator()(A& p, A g, A& first, A&, A&) const { rule(p, g, first); }
};

template <class A, bool amsgrad>
struct Adam {
  using Coefficients = AdamCoefficients;
  static constexpr int states = amsgrad ? 3 : 2;
  functional::AdamRule<A, amsgrad> rule;
  __device__ explicit Adam(const Coefficients& coefficients) : rule(coefficients) {}
  __device__ void operator()(A& p, A g, A& first, A& second, A& largest) const {
    rule(p, g, first, second, largest);
  }
};

/// The k-th array of a tensor, in the order in which update_kernel takes them.
const ArrayView& array_of(const OptimizerTensors& tensors, int k) {
  const ArrayView* const arrays[] = {&tensors.parameter, &tensors.gradient,   &tensors.state1,
                                     &tensors.state2,    &tensors.max_state2, &tensors.master};
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
    if (!view || (is_state && k >= 2 + states)) continue;
    LOCKSTEP_CHECK(k < 2 || view.dtype == wide, InvalidArgument, "optimizer: ", view.dtype,
                   " state of a ", parameter.dtype, " parameter; it must be ", wide);
    LOCKSTEP_CHECK(view.is_contiguous() && view.numel() == parameter.numel(), InvalidArgument,
                   "optimizer: arrays must be contiguous and of one size, got ", view.shape,
                   " with strides ", view.strides);
  }
}

template <class T, bool has_master, class Rule, class Coefficients>
void launch_updates(std::span<const OptimizerTensors> run, const Coefficients* coefficients,
                    const kernels::StepState& state, StreamRef stream) {
  for_each_table<6>(
      run.size(), [&](std::size_t i, int k) -> const ArrayView& { return array_of(run[i], k); },
      [&](const ChunkTable<6>& table, unsigned blocks) {
        launch(stream, blocks, threads, 0, update_kernel<T, Rule, has_master>, table, coefficients,
               state);
      });
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

/// One step of all tensors by `Rule<A>`, A the accumulation type of a parameter's dtype.
template <template <class> class Rule, class Arguments>
void update(const Arguments& arguments, void* scratch, StreamRef stream) {
  using Coefficients = typename Rule<double>::Coefficients;
  for_each_run(arguments.tensors, []<class T>(auto run, std::size_t, TypeTag<T>, bool has_master) {
    using A = AccumulateType<T>;
    for (const OptimizerTensors& each : run) check_arrays(each, Rule<A>::states, dtype_of<A>);
    LOCKSTEP_CHECK(!has_master || (!std::is_same_v<T, A>), InvalidArgument, "optimizer: a ",
                   dtype_of<T>, " parameter needs no master copy");
  });
  auto* const coefficients = static_cast<Coefficients*>(scratch);
  begin_step(arguments, coefficients, stream);
  for_each_run(arguments.tensors, [&]<class T>(auto run, std::size_t first, TypeTag<T>,
                                               bool has_master) {
    using A = AccumulateType<T>;
    if (!has_master)
      return launch_updates<T, false, Rule<A>>(run, coefficients + first, arguments.state, stream);
    if constexpr (!std::is_same_v<T, A>)
      launch_updates<T, true, Rule<A>>(run, coefficients + first, arguments.state, stream);
  });
}

template <class A>
using SgdPlain = Sgd<A, false>;
template <class A>
using SgdWithMomentum = Sgd<A, true>;
template <class A>
using AdamPlain = Adam<A, false>;
template <class A>
using AdamWithLargest = Adam<A, true>;

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

std::size_t optimizer_scratch_bytes(std::span<const OptimizerTensors> tensors) {
  return tensors.size() * std::max(sizeof(SgdCoefficients), sizeof(AdamCoefficients));
}

void sgd(const kernels::SgdArguments& arguments, void* scratch, StreamRef stream) {
  const auto run = arguments.momentum != 0 ? update<SgdWithMomentum, kernels::SgdArguments>
                                           : update<SgdPlain, kernels::SgdArguments>;
  run(arguments, scratch, stream);
}

void adam(const kernels::AdamArguments& arguments, void* scratch, StreamRef stream) {
  const auto run = arguments.amsgrad ? update<AdamWithLargest, kernels::AdamArguments>
                                     : update<AdamPlain, kernels::AdamArguments>;
  run(arguments, scratch, stream);
}

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
  for_each_array_table(arguments.arrays, "clip",
                       [&]<class T>(const ChunkTable<1>& table, unsigned blocks, TypeTag<T>) {
                         launch(stream, blocks, threads, 0, clip_kernel<T>, table,
                                arguments.square_sum.as<double>(), arguments.limit);
                       });
}

}  // namespace lockstep::cuda_kernels
