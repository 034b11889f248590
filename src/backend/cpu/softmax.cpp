#include "arguments/softmax.hpp"

#include "backend/cpu/families.hpp"
#include "backend/cpu/rows.hpp"

namespace lockstep::backend {
namespace {

void forward(const kernels::SoftmaxArguments& a, StreamRef) {
  const auto dtype = require_rows("softmax", {&a.x, &a.y});
  run_rows(host::loops().rows.softmax[dtype],
           {.out = a.y.data, .x = a.x.data, .columns = columns_of(a.x), .log = a.log}, a.x);
}

void backward(const kernels::SoftmaxBackwardArguments& a, StreamRef) {
  const auto dtype = require_rows("softmax_backward", {&a.y, &a.dy, &a.dx});
  run_rows(
      host::loops().rows.softmax_backward[dtype],
      {.out = a.dx.data, .dy = a.dy.data, .y = a.y.data, .columns = columns_of(a.y), .log = a.log},
      a.y);
}

}  // namespace

kernels::SoftmaxKernels cpu_softmax() { return {.forward = forward, .backward = backward}; }

}  // namespace lockstep::backend
