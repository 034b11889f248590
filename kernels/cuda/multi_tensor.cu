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

/// Adam's and SGD's elements of one chunk: T is the dtype of parameters and gradients; states and
/// master copies are in its accumulation type. `Rule` says how many states it has and updates one
/// element: of the master copy where there is one, and the parameter then gets its rounded value.
template <class T, class Rule, bool has_master>
__global__ void __launch_bounds__(threads)
    update_kernel(const __grid_constant__ ChunkTable<6> table, Rule rule) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T, A>;
  const int tensor = table.tensor[blockIdx.x];
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

template <class T, bool has_master, class Rule>
void launch_updates(std::span<const OptimizerTensors> run, const Rule& rule, StreamRef stream) {
  for_each_table<6>(
      run.size(), [&](std::size_t i, int k) -> const ArrayView& { return array_of(run[i], k); },
      [&](const ChunkTable<6>& table, unsigned blocks) {
        launch(stream, blocks, threads, 0, update_kernel<T, Rule, has_master>, table, rule);
      });
}

/// Updates all neighbours that have one dtype, with master copies or without, together.
/// `rule_of(A{})` makes the rule in accumulation type A.
template <class RuleOf>
void update(std::span<const OptimizerTensors> list, const RuleOf& rule_of, StreamRef stream) {
  for (std::size_t first = 0; first < list.size();) {
    const DType dtype = list[first].parameter.dtype;
    const bool has_master = static_cast<bool>(list[first].master);
    std::size_t last = first;
    while (last < list.size() && list[last].parameter.dtype == dtype &&
           static_cast<bool>(list[last].master) == has_master)
      ++last;
    const auto run = list.subspan(first, last - first);
    dispatch_floating(dtype, "optimizer", [&]<class T>(TypeTag<T>) {
      using A = AccumulateType<T>;
      const auto rule = rule_of(A{});
      for (const OptimizerTensors& each : run) check_arrays(each, rule.states, dtype_of<A>);
      if (!has_master) return launch_updates<T, false>(run, rule, stream);
      LOCKSTEP_CHECK((!std::is_same_v<T, A>), InvalidArgument, "optimizer: a ", dtype,
                     " parameter needs no master copy");
      if constexpr (!std::is_same_v<T, A>) launch_updates<T, true>(run, rule, stream);
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

void sgd(const kernels::SgdArguments& arguments, StreamRef stream) {
  const SgdCoefficients c = kernels::coefficients_of(arguments);
  const auto run = [&]<bool has_momentum>(std::bool_constant<has_momentum>) {
    update(
        arguments.tensors,
        [&]<class A>(A) { return Sgd<A, has_momentum>{functional::SgdRule<A, has_momentum>(c)}; },
        stream);
  };
  if (arguments.momentum != 0)
    run(std::true_type{});
  else
    run(std::false_type{});
}

void adam(const kernels::AdamArguments& arguments, StreamRef stream) {
  const AdamCoefficients c = kernels::coefficients_of(arguments);
  const auto run = [&]<bool amsgrad>(std::bool_constant<amsgrad>) {
    update(
        arguments.tensors,
        [&]<class A>(A) { return Adam<A, amsgrad>{functional::AdamRule<A, amsgrad>(c)}; }, stream);
  };
  if (arguments.amsgrad)
    run(std::true_type{});
  else
    run(std::false_type{});
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
