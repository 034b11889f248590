#include "functional/unary.hpp"

#include "cpu/loops/fill.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

template <template <class> class Functor, class T>
void forward(void* y, const void* x, std::int64_t n, const OpConstants& constants) {
  const Functor<T> functor(constants);
  T* to = static_cast<T*>(y);
  const T* from = static_cast<const T*>(x);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) to[i] = functor.forward(from[i]);
}

template <template <class> class Functor>
void add_op(Loops& loops, UnaryOp op) {
  loops.unary.at(Accumulate::f32, op) = forward<Functor, float>;
  loops.unary.at(Accumulate::f64, op) = forward<Functor, double>;
  if constexpr (Functor<std::int64_t>::integers)
    loops.unary.at(Accumulate::i64, op) = forward<Functor, std::int64_t>;
}

}  // namespace

void fill_unary(Loops& loops) {
#define LOCKSTEP_UNARY_OP(name, Functor, ...) add_op<functional::Functor>(loops, UnaryOp::name);
#include "functional/ops.def"
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
