#include "functional/unary.hpp"

#include "cpu/loops/fill.hpp"
#include "cpu/loops/parts.hpp"
#include "cpu/loops/powers.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

template <template <class> class Functor, class T>
void forward(void* y, const void* x, std::int64_t n, const OpConstants& constants) {
  const Functor<T> functor(constants);
  T* to = static_cast<T*>(y);
  const T* from = static_cast<const T*>(x);
  constexpr bool of_angles = std::is_floating_point_v<T> && requires(SmallAngle<T> angle) {
    functor.forward(angle);
  };
  for_each_part_of_angles<of_angles>(from, n,
                                     [&](std::int64_t begin, std::int64_t end, auto operand) {
#pragma GCC ivdep
                                       for (std::int64_t i = begin; i < end; ++i)
                                         to[i] = functor.forward(operand(from[i]));
                                     });
}

template <class T>
void power(void* y, const void* x, std::int64_t n, const OpConstants& constants) {
  with_power(constants.alpha,
             [&]<template <class> class Functor> { forward<Functor, T>(y, x, n, constants); });
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
  loops.unary.at(Accumulate::f32, UnaryOp::pow_scalar) = power<float>;
  loops.unary.at(Accumulate::f64, UnaryOp::pow_scalar) = power<double>;
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
