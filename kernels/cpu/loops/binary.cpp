#include "functional/binary.hpp"

#include "cpu/loops/fill.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

template <template <class> class Functor, class T>
void forward(void* out, const void* a, const void* b, std::int64_t n,
             const OpConstants& constants) {
  const Functor<T> functor(constants);
  T* to = static_cast<T*>(out);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) to[i] = functor.forward(left[i], right[i]);
}

template <template <class> class Functor, Saves saves, bool first, class T>
void backward(void* gradient, const void* dout, const void* a, const void* b, std::int64_t n,
              const OpConstants& constants) {
  const Functor<T> functor(constants);
  T* to = static_cast<T*>(gradient);
  const T* from = static_cast<const T*>(dout);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T x = saves == Saves::inputs ? left[i] : T(0);
    const T y = saves == Saves::inputs ? right[i] : T(0);
    to[i] = first ? functor.gradient_a(from[i], x, y) : functor.gradient_b(from[i], x, y);
  }
}

template <template <class> class Functor, Saves saves, class T>
void add_floating(Loops& loops, BinaryOp op) {
  constexpr Accumulate type = accumulate_tag<T>;
  loops.binary.at(type, op) = forward<Functor, T>;
  loops.binary_backward_a.at(type, op) = backward<Functor, saves, true, T>;
  loops.binary_backward_b.at(type, op) = backward<Functor, saves, false, T>;
}

template <template <class> class Functor, Saves saves>
void add_op(Loops& loops, BinaryOp op) {
  add_floating<Functor, saves, float>(loops, op);
  add_floating<Functor, saves, double>(loops, op);
  if constexpr (Functor<std::int64_t>::integers)
    loops.binary.at(Accumulate::i64, op) = forward<Functor, std::int64_t>;
}

}  // namespace

void fill_binary(Loops& loops) {
#define LOCKSTEP_BINARY_OP(name, Functor, saves, ...) \
  add_op<functional::Functor, Saves::saves>(loops, BinaryOp::name);
#include "functional/ops.def"
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
