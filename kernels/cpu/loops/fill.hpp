#pragma once

#include "cpu/loops.hpp"
#include "functional/namespace.hpp"

/// @file
/// What each file of this folder adds to the table of its instruction set.

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {

void fill_convert(Loops& loops);
void fill_unary(Loops& loops);
void fill_unary_backward(Loops& loops);
void fill_binary(Loops& loops);
void fill_compare(Loops& loops);
void fill_reduce(Loops& loops);
void fill_random(Loops& loops);
void fill_batch_norm(Loops& loops);
void fill_plane_norm(Loops& loops);
void fill_pooling(Loops& loops);
void fill_softmax(RowLoops& loops);
void fill_inner_softmax(RowLoops& loops);
void fill_norm(RowLoops& loops);
void fill_rotary(RowLoops& loops);
void fill_recurrent(RowLoops& loops);
void fill_optimizer(RowLoops& loops);
void fill_few_rows(FewRowsLoops& loops);
void fill_lines(LineLoops& loops);
void fill_resize(ResizeLoops<float>& f32, ResizeLoops<double>& f64);

/// The C++ type of an accumulation type.
template <class T>
inline constexpr Accumulate accumulate_tag = sizeof(T) == 4 ? Accumulate::f32
                                                            : (T(0.5) != T(0) ? Accumulate::f64
                                                                              : Accumulate::i64);

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
