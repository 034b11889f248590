#include "functional/optimizer.hpp"

#include "cpu/loops/fill.hpp"

namespace lockstep::host::LOCKSTEP_ISA {
namespace {

template <class T, bool has_momentum>
void sgd_loop(T* parameter, const T* gradient, T* momentum, std::int64_t n,
              const SgdCoefficients& coefficients) {
  const functional::SgdRule<T, has_momentum> rule(coefficients);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    T p = parameter[i], m = has_momentum ? momentum[i] : T(0);
    rule(p, gradient[i], m);
    parameter[i] = p;
    if constexpr (has_momentum) momentum[i] = m;
  }
}

template <class T>
void sgd(void* parameter, const void* gradient, void* momentum, std::int64_t n,
         const SgdCoefficients& coefficients) {
  const auto loop = momentum ? sgd_loop<T, true> : sgd_loop<T, false>;
  loop(static_cast<T*>(parameter), static_cast<const T*>(gradient), static_cast<T*>(momentum), n,
       coefficients);
}

template <class T, bool amsgrad>
void adam_loop(T* parameter, const T* gradient, T* first, T* second, T* largest, std::int64_t n,
               const AdamCoefficients& coefficients) {
  const functional::AdamRule<T, amsgrad> rule(coefficients);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    T p = parameter[i], m = first[i], v = second[i], top = amsgrad ? largest[i] : T(0);
    rule(p, gradient[i], m, v, top);
    parameter[i] = p;
    first[i] = m;
    second[i] = v;
    if constexpr (amsgrad) largest[i] = top;
  }
}

template <class T>
void adam(void* parameter, const void* gradient, void* first, void* second, void* largest,
          std::int64_t n, const AdamCoefficients& coefficients) {
  const auto loop = largest ? adam_loop<T, true> : adam_loop<T, false>;
  loop(static_cast<T*>(parameter), static_cast<const T*>(gradient), static_cast<T*>(first),
       static_cast<T*>(second), static_cast<T*>(largest), n, coefficients);
}

}  // namespace

void fill_optimizer(RowLoops& loops) {
  loops.sgd[static_cast<std::size_t>(Accumulate::f32)] = sgd<float>;
  loops.sgd[static_cast<std::size_t>(Accumulate::f64)] = sgd<double>;
  loops.adam[static_cast<std::size_t>(Accumulate::f32)] = adam<float>;
  loops.adam[static_cast<std::size_t>(Accumulate::f64)] = adam<double>;
}

}  // namespace lockstep::host::LOCKSTEP_ISA
