#include <utility>

#include "cpu/loops/fill.hpp"
#include "cpu/optimizer_loops.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

template <class Coefficients, class T, class... State>
void update_loop(const Coefficients& given, std::int64_t n, T* parameter, const T* gradient,
                 State*... state) {
  const Coefficients c = given;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    // On copies, to which no array can point.
    [&](T p, State... s) {
      functional::update(c, p, gradient[i], s...);
      parameter[i] = p;
      ((state[i] = s), ...);
    }(parameter[i], state[i]...);
  }
}

/// The loop of a rule with sizeof...(k) states; k are 0, 1 ...
template <class Rule, class T, int... k>
void update_arrays(void* const* arrays, std::int64_t n,
                   const typename Rule::Coefficients& coefficients) {
  update_loop(coefficients, n, static_cast<T*>(arrays[0]), static_cast<const T*>(arrays[1]),
              static_cast<T*>(arrays[2 + k])...);
}

template <class Rule, class T, int states>
void fill_loops(OptimizerLoops<Rule>& loops) {
  [&]<int... k>(std::integer_sequence<int, k...>) {
    loops.loop[static_cast<std::size_t>(accumulate_tag<T>)][states] = update_arrays<Rule, T, k...>;
  }
  (std::make_integer_sequence<int, states>());
  if constexpr (states < Rule::most_states) fill_loops<Rule, T, states + 1>(loops);
}

/// Neighbours go to sums of their own, as many as make whole vectors.
constexpr std::int64_t sums = 16;

template <class Coefficients, class T, class... State>
void measure_loop(const Coefficients& given, std::int64_t n, double* squares, const T* parameter,
                  const T* gradient, State*... state) {
  const Coefficients c = given;
  double parameters[sums] = {}, updates[sums] = {};
  const auto measure_at = [&](std::int64_t i, std::int64_t sum) {
    [&](State... s) {
      const auto measured = functional::measure(c, parameter[i], gradient[i], s...);
      ((state[i] = s), ...);
      parameters[sum] += double(measured.parameter) * double(measured.parameter);
      updates[sum] += double(measured.update) * double(measured.update);
    }(state[i]...);
  };
  std::int64_t i = 0;
  for (; i + sums <= n; i += sums) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < sums; ++j) measure_at(i + j, j);
  }
  for (std::int64_t j = 0; i + j < n; ++j) measure_at(i + j, j);
  for (std::int64_t j = 0; j < sums; ++j) {
    squares[0] += parameters[j];
    squares[1] += updates[j];
  }
}

/// The loop of a rule by layer, which has one number of states; k are 0, 1 ...
template <class Rule, class T, int... k>
void measure_arrays(void* const* arrays, std::int64_t n,
                    const typename Rule::Coefficients& coefficients, double* squares) {
  measure_loop(coefficients, n, squares, static_cast<const T*>(arrays[0]),
               static_cast<const T*>(arrays[1]), static_cast<T*>(arrays[2 + k])...);
}

template <class Rule, class T>
void fill_measure(MeasureLoop<Rule>* loops) {
  static_assert(Rule::least_states == Rule::most_states);
  [&]<int... k>(std::integer_sequence<int, k...>) {
    loops[static_cast<std::size_t>(accumulate_tag<T>)] = measure_arrays<Rule, T, k...>;
  }
  (std::make_integer_sequence<int, Rule::most_states>());
}

}  // namespace

void fill_optimizer(RowLoops& loops) {
  static const OptimizerTable filled = [] {
    OptimizerTable table;
#define LOCKSTEP_OPTIMIZER(name, Rule)                     \
  fill_loops<Rule, float, Rule::least_states>(table.name); \
  fill_loops<Rule, double, Rule::least_states>(table.name);
    LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
#define LOCKSTEP_OPTIMIZER(name, Rule)             \
  fill_measure<Rule, float>(table.name##_measure); \
  fill_measure<Rule, double>(table.name##_measure);
    LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
    return table;
  }();
  loops.optimizers = &filled;
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
