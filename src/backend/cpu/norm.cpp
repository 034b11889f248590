#include "cpu/norm.hpp"

#include "arguments/norm.hpp"
#include "backend/cpu/families.hpp"
#include "backend/cpu/rows.hpp"

namespace lockstep::backend {
namespace {

using host::Accumulate;
using host::Widened;

void layer_norm(const kernels::LayerNormArguments& a, StreamRef) {
  const auto dtype = require_rows("layer_norm", {&a.x, &a.y});
  const Accumulate type = host::accumulate_of(a.x.dtype);
  const Widened weight(a.weight, type), bias(a.bias, type);
  run_rows(host::loops().rows.layer_norm[dtype],
           {.y = a.y.data,
            .mean = a.mean.data,
            .rstd = a.rstd.data,
            .x = a.x.data,
            .weight = weight.data(),
            .bias = bias.data(),
            .columns = columns_of(a.x),
            .eps = a.eps},
           a.x);
}

void layer_norm_backward(const kernels::LayerNormBackwardArguments& a, StreamRef) {
  const auto dtype = require_rows("layer_norm_backward", {&a.x, &a.dy});
  const Accumulate type = host::accumulate_of(a.x.dtype);
  const Widened weight(a.weight, type);
  host::norm_backward(host::loops().rows.layer_norm_backward[dtype],
                      {.mean = a.mean.data,
                       .rstd = a.rstd.data,
                       .x = a.x.data,
                       .weight = weight.data(),
                       .dy = a.dy.data,
                       .dx = a.dx.data,
                       .columns = columns_of(a.x)},
                      rows_of(a.x), type,
                      {.dweight = a.dweight, .dbias = a.dbias, .accumulate = a.accumulate});
}

void rms_norm(const kernels::RmsNormArguments& a, StreamRef) {
  const auto dtype = require_rows("rms_norm", {&a.x, &a.y});
  const Widened weight(a.weight, host::accumulate_of(a.x.dtype));
  run_rows(host::loops().rows.rms_norm[dtype],
           {.y = a.y.data,
            .rstd = a.rstd.data,
            .x = a.x.data,
            .weight = weight.data(),
            .columns = columns_of(a.x),
            .eps = a.eps},
           a.x);
}

void rms_norm_backward(const kernels::RmsNormBackwardArguments& a, StreamRef) {
  const auto dtype = require_rows("rms_norm_backward", {&a.x, &a.dy});
  const Accumulate type = host::accumulate_of(a.x.dtype);
  const Widened weight(a.weight, type);
  host::norm_backward(host::loops().rows.rms_norm_backward[dtype],
                      {.rstd = a.rstd.data,
                       .x = a.x.data,
                       .weight = weight.data(),
                       .dy = a.dy.data,
                       .dx = a.dx.data,
                       .columns = columns_of(a.x)},
                      rows_of(a.x), type, {.dweight = a.dweight, .accumulate = a.accumulate});
}

}  // namespace

kernels::NormKernels cpu_norm() {
  return {.layer_norm = layer_norm,
          .layer_norm_backward = layer_norm_backward,
          .rms_norm = rms_norm,
          .rms_norm_backward = rms_norm_backward};
}

}  // namespace lockstep::backend
