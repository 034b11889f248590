#include <algorithm>
#include <utility>

#include "cuda/compact_optimizer.hpp"
#include "cuda/measured_squares.hpp"
#include "cuda/optimizer.hpp"
#include "cuda/optimizer_table.hpp"
#include "cuda/row_access.hpp"

namespace lockstep::cuda_kernels {
namespace {

using Table = ChunkTable<pointers>;
constexpr int threads = optimizer_threads;

/// A block's chunk of a tensor. T is the dtype of parameters and gradients; the states, k of them
/// for k = 0, 1 ..., and master copies are in its accumulation type.
template <class T, int... k>
struct Chunk {
  using A = AccumulateType<T>;
  static constexpr int N = lanes_of<T, A>;
  static constexpr bool may_have_master = !std::is_same_v<T, A>;

  T* parameter;
  const T* gradient;
  A* state[most_optimizer_states];
  A* master;  // null: the parameter itself is updated
  std::int64_t first, last;
  bool aligned;

  __device__ Chunk(const Table& table, int tensor)
      : parameter(static_cast<T*>(table.array[parameter_array][tensor])),
        gradient(static_cast<const T*>(table.array[gradient_array][tensor])),
        state{static_cast<A*>(table.array[0][tensor]), static_cast<A*>(table.array[1][tensor]),
              static_cast<A*>(table.array[2][tensor])},
        master(static_cast<A*>(table.array[master_array][tensor])),
        first(table.first(tensor, blockIdx.x)),
        last(table.last(tensor, blockIdx.x)),
        aligned(is_aligned(parameter) && is_aligned(gradient) && is_aligned(master) &&
                (is_aligned(state[k]) && ...)) {}

  /// Calls `use(p, g, s...)` for each element: the value to update, its gradient, its states.
  template <bool writes, class Use>
  __device__ void for_each(const Use& use) const {
    for (std::int64_t at = first + threadIdx.x * N; at < last; at += threads * N) {
      const bool wide = aligned && at + N <= last;
      auto p = may_have_master && master ? load_row<N>(master, at, last, wide)
                                         : load_row<N>(parameter, at, last, wide);
      const auto g = load_row<N>(gradient, at, last, wide);
      [[maybe_unused]] Pack<A, N> s[most_optimizer_states] = {};
      ((s[k] = load_row<N>(state[k], at, last, wide)), ...);
      LOCKSTEP_UNROLL
      for (int j = 0; j < N; ++j)
        if (wide || at + j < last) use(p[j], g[j], s[k][j]...);
      if constexpr (writes) {
        store_row<N>(parameter, at, last, wide, p);
        if constexpr (may_have_master)
          if (master) store_row<N>(master, at, last, wide, p);
        (store_row<N>(state[k], at, last, wide, s[k]), ...);
      }
    }
  }
};

/// What is updated is the master copy where there is one, and the parameter then gets its rounded
/// value.
template <class T, class Rule, int... k>
__global__ void __launch_bounds__(threads)
    update_kernel(LOCKSTEP_GRID_CONSTANT(Table) table,
                  LOCKSTEP_GRID_CONSTANT(OptimizerArguments<Rule>) arguments) {
  if (arguments.state.skips()) return;
  const int tensor = table.tensor_of(blockIdx.x);
  const auto c = take_step(table, tensor, arguments, true).coefficients;
  using A = AccumulateType<T>;
  Chunk<T, k...>(table, tensor).template for_each<true>([&](A& p, A g, auto&... s) {
    functional::update<A>(c, p, g, s...);
  });
}

template <class T, class Rule, int... k>
__global__ void __launch_bounds__(threads)
    measure_kernel(LOCKSTEP_GRID_CONSTANT(Table) table,
                   LOCKSTEP_GRID_CONSTANT(OptimizerArguments<Rule>) arguments, double* squares,
                   double* partials) {
  if (arguments.state.skips()) return;
  const int tensor = table.tensor_of(blockIdx.x);
  const auto c = take_step(table, tensor, arguments, false).coefficients;
  using A = AccumulateType<T>;
  double sums[2] = {};
  Chunk<T, k...>(table, tensor).template for_each<false>([&](A p, A g, auto... s) {
    const auto measured = functional::measure<A>(c, p, g, s...);
    add_squares(sums, measured);
  });
  add_up(table, tensor, sums, squares, partials);
}

/// Only the states that the rule uses need to fit.
/// @throws InvalidArgument or Unsupported if an array does not fit its parameter.
void check_arrays(const OptimizerTensors& tensors, int states, DType wide) {
  const FlatArray& parameter = tensors.parameter;
  LOCKSTEP_CHECK(tensors.gradient.dtype == parameter.dtype, Unsupported, "optimizer: a ",
                 tensors.gradient.dtype, " gradient of a ", parameter.dtype,
                 " parameter on device cuda");
  LOCKSTEP_CHECK(!tensors.master || parameter.dtype != wide, InvalidArgument, "optimizer: a ",
                 parameter.dtype, " parameter needs no master copy");
  for (int k = 0; k < arrays; ++k) {
    const FlatArray& array = array_of(tensors, k);
    const bool is_state = k < most_optimizer_states;
    if (is_state ? k >= states : !array) continue;
    LOCKSTEP_CHECK(array, InvalidArgument, "optimizer: state ", k + 1, " of ", states,
                   " is absent");
    LOCKSTEP_CHECK(k == parameter_array || k == gradient_array || array.dtype == wide,
                   InvalidArgument, "optimizer: ", array.dtype, " state of a ", parameter.dtype,
                   " parameter; it must be ", wide);
    LOCKSTEP_CHECK(array.count == parameter.count, InvalidArgument, "optimizer: an array of ",
                   array.count, " elements beside a parameter of ", parameter.count);
  }
}

/// Calls `launch_run.operator()<T, k...>(table, blocks, first)` for tables of neighbours that have
/// one dtype T; `first` is the first of the run in the list, and k are the rule's states.
template <class Rule, class Launch>
void for_each_run(const OptimizerArguments<Rule>& arguments, const Launch& launch_run) {
  const auto list = arguments.tensors;
  const int states = arguments.rule.states();
  for (const OptimizerTensors& each : list)
    check_arrays(each, states, each.parameter.dtype == DType::f64 ? DType::f64 : DType::f32);
  for (std::size_t first = 0; first < list.size();) {
    const DType dtype = list[first].parameter.dtype;
    std::size_t last = first;
    while (last < list.size() && list[last].parameter.dtype == dtype) ++last;
    const auto run = list.subspan(first, last - first);
    dispatch_floating(dtype, "optimizer", [&]<class T>(TypeTag<T>) {
      with_states(
          arguments.rule, [&]<int... k>() {
            for_each_table<pointers>(
                run.size(), [&](std::size_t i, int n) { return pointer_of(run[i], n); },
                [&](std::size_t i) { return run[i].parameter.count; },
                [&](const Table& table, unsigned blocks) {
                  launch_run.template operator()<T, k...>(table, blocks, first);
                });
          });
    });
    first = last;
  }
}

/// What the kernel takes: nothing that lies on the host, and the squares from a run's first tensor
/// on.
template <class Rule>
OptimizerArguments<Rule> for_run(OptimizerArguments<Rule> arguments, std::size_t first) {
  arguments.tensors = {};
  if (arguments.squares) arguments.squares += 2 * first;
  return arguments;
}

template <class Rule>
void update(const OptimizerArguments<Rule>& arguments, StreamRef stream) {
  if (std::ranges::any_of(arguments.tensors, &OptimizerTensors::is_compact))
    return compact_update(arguments, stream);
  static_assert(sizeof(Table) + sizeof arguments <= most_argument_bytes);
  for_each_run(arguments,
               [&]<class T, int... k>(const Table& table, unsigned blocks, std::size_t first) {
                 launch(stream, blocks, threads, 0, update_kernel<T, Rule, k...>, table,
                        for_run(arguments, first));
               });
}

template <class Rule>
void measure(const OptimizerArguments<Rule>& arguments, void* scratch, StreamRef stream) {
  if (std::ranges::any_of(arguments.tensors, &OptimizerTensors::is_compact))
    return compact_measure(arguments, scratch, stream);
  for_each_run(arguments,
               [&]<class T, int... k>(const Table& table, unsigned blocks, std::size_t first) {
                 auto own = for_run(arguments, first);
                 double* const squares = std::exchange(own.squares, nullptr);  // not known yet
                 launch(stream, blocks, threads, 0, measure_kernel<T, Rule, k...>, table, own,
                        squares, static_cast<double*>(scratch));
               });
}

}  // namespace

#define LOCKSTEP_OPTIMIZER(name, Rule)                                              \
  void name(const kernels::OptimizerArguments<Rule>& arguments, StreamRef stream) { \
    update(arguments, stream);                                                      \
  }
LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER

std::size_t measure_scratch_bytes(std::span<const OptimizerTensors> tensors) {
  std::int64_t chunks = 0;
  for (const OptimizerTensors& each : tensors) chunks += chunks_of(each.parameter.count);
  return static_cast<std::size_t>(chunks) * 2 * sizeof(double);
}

#define LOCKSTEP_OPTIMIZER(name, Rule)                                                   \
  void name##_measure(const kernels::OptimizerArguments<Rule>& arguments, void* scratch, \
                      StreamRef stream) {                                                \
    measure(arguments, scratch, stream);                                                 \
  }
LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER

}  // namespace lockstep::cuda_kernels
