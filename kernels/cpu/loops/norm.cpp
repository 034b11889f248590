#include "functional/norm.hpp"

#include "cpu/loops/fill.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

using functional::SoloGroup;

template <bool centred, class T>
void norm(const NormRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * a.columns;
    const auto statistics = functional::norm_row<centred, A>(
        SoloGroup{}, static_cast<T*>(a.y) + at, static_cast<const T*>(a.x) + at,
        static_cast<const A*>(a.weight), static_cast<const A*>(a.bias), a.columns,
        static_cast<A>(a.eps));
    if constexpr (centred) static_cast<A*>(a.mean)[row] = statistics.mean;
    static_cast<A*>(a.rstd)[row] = statistics.rstd;
  }
}

template <bool centred, class T>
void norm_backward(const NormRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const x = static_cast<const T*>(a.x) + row * a.columns;
    const T* const dy = static_cast<const T*>(a.dy) + row * a.columns;
    const functional::NormStatistics<A> statistics{
        centred ? static_cast<const A*>(a.mean)[row] : A(0), static_cast<const A*>(a.rstd)[row]};
    // The parameters first: dx may overwrite dy.
    if (a.dweight || a.dbias)
      functional::norm_parameters_row<A>(SoloGroup{}, static_cast<A*>(a.dweight),
                                         static_cast<A*>(a.dbias), dy, x, a.columns, statistics);
    if (a.dx)
      functional::norm_backward_row<centred, A>(
          SoloGroup{}, static_cast<T*>(a.dx) + row * a.columns, dy, x,
          static_cast<const A*>(a.weight), a.columns, statistics, a.add_dx);
  }
}

template <class T>
void add_dtype(RowLoops& loops) {
  constexpr auto dtype = static_cast<std::size_t>(dtype_of<T>);
  loops.layer_norm[dtype] = norm<true, T>;
  loops.layer_norm_backward[dtype] = norm_backward<true, T>;
  loops.rms_norm[dtype] = norm<false, T>;
  loops.rms_norm_backward[dtype] = norm_backward<false, T>;
}

}  // namespace

void fill_norm(RowLoops& loops) {
  add_dtype<double>(loops);
  add_dtype<float>(loops);
  add_dtype<BFloat16>(loops);
  add_dtype<Half>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
