#include "functional/norm.hpp"

#include "cpu/loops/fill.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

using functional::SoloGroup;

template <bool centred, class X, class Y>
void norm(const NormRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<X>;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * a.columns;
    const auto statistics = functional::norm_row<centred, A>(
        SoloGroup{}, static_cast<Y*>(a.y) + at, static_cast<const X*>(a.x) + at,
        static_cast<const A*>(a.weight), static_cast<const A*>(a.bias), a.columns,
        static_cast<A>(a.eps));
    if constexpr (centred) static_cast<A*>(a.mean)[row] = statistics.mean;
    static_cast<A*>(a.rstd)[row] = statistics.rstd;
  }
}

template <bool centred, class X, class Y>
void norm_backward(const NormRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<X>;
  for (std::int64_t row = begin; row < end; ++row) {
    const X* const x = static_cast<const X*>(a.x) + row * a.columns;
    const Y* const dy = static_cast<const Y*>(a.dy) + row * a.columns;
    const functional::NormStatistics<A> statistics{
        centred ? static_cast<const A*>(a.mean)[row] : A(0), static_cast<const A*>(a.rstd)[row]};
    // The parameters first: dx may overwrite dy.
    if (a.dweight || a.dbias)
      functional::norm_parameters_row<A>(SoloGroup{}, static_cast<A*>(a.dweight),
                                         static_cast<A*>(a.dbias), dy, x, a.columns, statistics);
    if (a.dx)
      functional::norm_backward_row<centred, A>(
          SoloGroup{}, static_cast<X*>(a.dx) + row * a.columns, dy, x,
          static_cast<const A*>(a.weight), a.columns, statistics, a.add_dx);
  }
}

template <class X, class Y = X>
void add_dtypes(RowLoops& loops) {
  constexpr auto x = static_cast<std::size_t>(dtype_of<X>),
                 y = static_cast<std::size_t>(dtype_of<Y>);
  loops.layer_norm[x][y] = norm<true, X, Y>;
  loops.layer_norm_backward[x][y] = norm_backward<true, X, Y>;
  loops.rms_norm[x][y] = norm<false, X, Y>;
  loops.rms_norm_backward[x][y] = norm_backward<false, X, Y>;
}

}  // namespace

void fill_norm(RowLoops& loops) {
  add_dtypes<double>(loops);
  add_dtypes<float>(loops);
  add_dtypes<float, BFloat16>(loops);
  add_dtypes<float, Half>(loops);
  add_dtypes<BFloat16>(loops);
  add_dtypes<Half>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
