#include "functional/optimizer.hpp"

#include <utility>

#include "cpu/loops/fill.hpp"

namespace lockstep::host::LOCKSTEP_ISA {
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

}  // namespace

void fill_optimizer(RowLoops& loops) {
#define LOCKSTEP_OPTIMIZER(name, Rule)                     \
  fill_loops<Rule, float, Rule::least_states>(loops.name); \
  fill_loops<Rule, double, Rule::least_states>(loops.name);
  LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
}

}  // namespace lockstep::host::LOCKSTEP_ISA
