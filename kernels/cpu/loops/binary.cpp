#include "functional/binary.hpp"

#include "cpu/loops/fill.hpp"
#include "cpu/loops/parts.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

template <template <class> class Functor, class T>
void forward(void* out, const void* a, const void* b, std::int64_t n,
             const OpConstants& constants) {
  const Functor<T> functor(constants);
  T* to = static_cast<T*>(out);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  constexpr bool of_quotients = requires(CloseOperand x) { functor.forward(x, x); };
  const auto part = [&](std::int64_t begin, std::int64_t end, auto operand) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i)
      to[i] = functor.forward(operand(left[i]), operand(right[i]));
  };
  for_each_part_of_quotients<of_quotients>(left, right, n, part);
}

template <bool first, bool second, Saves saves, class Functor, class T>
void gradients(const Functor& functor, T* da, T* db, const T* dout, const T* a, const T* b,
               std::int64_t n) {
  constexpr bool of_quotients = second && requires(CloseOperand x) {
    functor.gradient_b(T(), x, x);
  };
  const auto part = [&](std::int64_t begin, std::int64_t end, auto operand) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      const auto x = operand(saves == Saves::inputs ? a[i] : T(0));
      const auto y = operand(saves == Saves::inputs ? b[i] : T(0));
      if constexpr (first) da[i] = functor.gradient_a(dout[i], x, y);
      if constexpr (second) db[i] = functor.gradient_b(dout[i], x, y);
    }
  };
  for_each_part_of_quotients<of_quotients>(a, b, n, part);
}

template <template <class> class Functor, Saves saves, class T>
void backward(void* da, void* db, const void* dout, const void* a, const void* b, std::int64_t n,
              const OpConstants& constants) {
  const Functor<T> functor(constants);
  const auto run = [&]<bool first, bool second> {
    gradients<first, second, saves>(functor, static_cast<T*>(da), static_cast<T*>(db),
                                    static_cast<const T*>(dout), static_cast<const T*>(a),
                                    static_cast<const T*>(b), n);
  };
  if (da && db)
    run.template operator()<true, true>();
  else if (da)
    run.template operator()<true, false>();
  else
    run.template operator()<false, true>();
}

template <template <class> class Functor, Saves saves, class T>
void add_floating(Loops& loops, BinaryOp op) {
  constexpr Accumulate type = accumulate_tag<T>;
  loops.binary.at(type, op) = forward<Functor, T>;
  loops.binary_backward.at(type, op) = backward<Functor, saves, T>;
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
