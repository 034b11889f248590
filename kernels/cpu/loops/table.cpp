#include "cpu/loops/fill.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {

const Loops& table() {
  static const Loops filled = [] {
    Loops loops;
    fill_convert(loops);
    fill_unary(loops);
    fill_unary_backward(loops);
    fill_binary(loops);
    fill_compare(loops);
    fill_reduce(loops);
    fill_random(loops);
    fill_batch_norm(loops);
    fill_plane_norm(loops);
    fill_pooling(loops);
    fill_softmax(loops.rows);
    fill_inner_softmax(loops.rows);
    fill_norm(loops.rows);
    fill_rotary(loops.rows);
    fill_recurrent(loops.rows);
    fill_optimizer(loops.rows);
    fill_few_rows(loops.few_rows);
    fill_lines(loops.lines);
    fill_resize(loops.resize_f32, loops.resize_f64);
    return loops;
  }();
  return filled;
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
