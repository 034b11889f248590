#include "cpu/loops/fill.hpp"
#include "cpu/loops/parts.hpp"
#include "cpu/loops/powers.hpp"
#include "functional/unary.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

template <template <class> class Functor, Saves saves, class T>
void backward(void* dx, const void* dy, const void* saved, std::int64_t n,
              const OpConstants& constants) {
  const Functor<T> functor(constants);
  T* to = static_cast<T*>(dx);
  const T* from = static_cast<const T*>(dy);
  const T* kept = static_cast<const T*>(saved);
  constexpr bool of_angles = std::is_floating_point_v<T> && requires(SmallAngle<T> angle) {
    functor.gradient(T(), angle, T());
  };
  for_each_part_of_angles<of_angles>(kept, n,
                                     [&](std::int64_t begin, std::int64_t end, auto operand) {
#pragma GCC ivdep
                                       for (std::int64_t i = begin; i < end; ++i) {
                                         const T x = saves == Saves::input ? kept[i] : T(0);
                                         const T y = saves == Saves::output ? kept[i] : T(0);
                                         to[i] = functor.gradient(from[i], operand(x), y);
                                       }
                                     });
}

template <class T>
void power(void* dx, const void* dy, const void* saved, std::int64_t n,
           const OpConstants& constants) {
  with_power(constants.alpha, [&]<template <class> class Functor> {
    backward<Functor, Saves::input, T>(dx, dy, saved, n, constants);
  });
}

template <template <class> class Functor, Saves saves>
void add_op(Loops& loops, UnaryOp op) {
  loops.unary_backward.at(Accumulate::f32, op) = backward<Functor, saves, float>;
  loops.unary_backward.at(Accumulate::f64, op) = backward<Functor, saves, double>;
}

}  // namespace

void fill_unary_backward(Loops& loops) {
#define LOCKSTEP_UNARY_OP(name, Functor, saves, ...) \
  add_op<functional::Functor, Saves::saves>(loops, UnaryOp::name);
#include "functional/ops.def"
  loops.unary_backward.at(Accumulate::f32, UnaryOp::pow_scalar) = power<float>;
  loops.unary_backward.at(Accumulate::f64, UnaryOp::pow_scalar) = power<double>;
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
