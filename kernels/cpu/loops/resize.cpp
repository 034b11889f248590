#include "cpu/loops/fill.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

template <class T>
void add_row(T* sum, const T* x, T weight, bool more, std::int64_t n) {
  if (more) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) sum[i] += weight * x[i];
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) sum[i] = weight * x[i];
  }
}

/// One term of each result. What has no weight is left out, be it infinite.
template <bool more, class T>
void add_term(T* y, const T* x, const T* weight, const std::int32_t* from, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t j = 0; j < n; ++j) {
    const T before = more ? y[j] : T(0), product = weight[j] * x[from[j]];
    y[j] = weight[j] == T(0) ? before : (more ? before + product : product);
  }
}

template <class T>
void resize_row(T* y, const T* x, const ResizeTerms<T>& terms, std::int64_t group) {
  const std::int64_t n = terms.results;
  if (group == 1) {
    add_term<false>(y, x, terms.weight, terms.from, n);
    for (std::int64_t k = 1; k < terms.terms; ++k)
      add_term<true>(y, x, terms.weight + k * n, terms.from + k * n, n);
    return;
  }
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t k = 0; k < terms.terms; ++k) {
      const T weight = terms.weight[k * n + j];
      if (weight != T(0))
        add_row(y + j * group, x + terms.from[k * n + j] * group, weight, k > 0, group);
      else if (k == 0)
        for (std::int64_t c = 0; c < group; ++c) y[j * group + c] = T(0);
    }
}

}  // namespace

void fill_resize(ResizeLoops<float>& f32, ResizeLoops<double>& f64) {
  f32 = {add_row<float>, resize_row<float>};
  f64 = {add_row<double>, resize_row<double>};
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
