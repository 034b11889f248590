#include "arguments/softmax.hpp"

#include "cpu/rows.hpp"

namespace lockstep::cpu_kernels {
void softmax::forward(const kernels::SoftmaxArguments& a, StreamRef) {
  const auto dtype = require_rows("softmax", {&a.x, &a.y});
  run_rows(loops().rows.softmax[dtype],
           {.out = a.y.data, .x = a.x.data, .columns = columns_of(a.x), .log = a.log}, a.x);
}

void softmax::backward(const kernels::SoftmaxBackwardArguments& a, StreamRef) {
  const auto dtype = require_rows("softmax_backward", {&a.y, &a.dy, &a.dx});
  run_rows(
      loops().rows.softmax_backward[dtype],
      {.out = a.dx.data, .dy = a.dy.data, .y = a.y.data, .columns = columns_of(a.y), .log = a.log},
      a.y);
}

}  // namespace lockstep::cpu_kernels
