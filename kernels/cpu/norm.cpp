#include "arguments/norm.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "arguments/norm_byproducts.hpp"
#include "cpu/rows.hpp"
#include "cpu/widened.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// The loop for an x and a result of these dtypes. @throws Unsupported for others.
RowLoop<NormRows> loop_for(const RowLoop<NormRows> (&loops)[RowLoops::dtypes][RowLoops::dtypes],
                           std::string_view op, const ArrayView& x, const ArrayView& y) {
  const auto loop = loops[require_rows(op, {&x})][require_rows(op, {&y})];
  LOCKSTEP_CHECK(loop, Unsupported, op, ": ", y.dtype, " is not offered of ", x.dtype);
  return loop;
}

/// Where the sums over all rows go; each array may be absent.
struct WeightGradients {
  ArrayView dweight = {}, dbias = {};
  bool add_dweight = false, add_dbias = false;
};

/// Sums chunks of partial sums, in their order, into a parameter's gradient.
template <class A>
void combine_partials(const ArrayView& out, const std::vector<A>& partials, std::int64_t columns,
                      bool accumulate) {
  if (!out) return;
  const std::int64_t chunks = columns ? static_cast<std::int64_t>(partials.size()) / columns : 0;
  const auto size = static_cast<std::int64_t>(lockstep::size_of(out.dtype));
  const auto load = loops().load[static_cast<std::size_t>(out.dtype)];
  const auto store = loops().store(Accumulate::f64, out.dtype);
  const bool wide = accumulate_of(out.dtype) == Accumulate::f64;
  for (std::int64_t first = 0; first < columns; first += tile_elements) {
    const std::int64_t n = std::min(tile_elements, columns - first);
    std::array<double, tile_elements> total{}, before;
    if (accumulate) {
      load(before.data(), out.as<char>() + first * size, 1, n);
      for (std::int64_t i = 0; i < n; ++i)
        total[static_cast<std::size_t>(i)] =
            wide ? before[static_cast<std::size_t>(i)]
                 : static_cast<double>(reinterpret_cast<const float*>(before.data())[i]);
    }
    for (std::int64_t c = 0; c < chunks; ++c)
      for (std::int64_t i = 0; i < n; ++i)
        total[static_cast<std::size_t>(i)] +=
            static_cast<double>(partials[static_cast<std::size_t>(c * columns + first + i)]);
    store(out.as<char>() + first * size, 1, total.data(), n);
  }
}

template <class A>
void norm_backward_typed(RowLoop<NormRows> loop, const NormRows& arrays, std::int64_t rows,
                         const WeightGradients& gradients) {
  const auto& [dweight, dbias, add_dweight, add_dbias] = gradients;
  const std::int64_t columns = arrays.columns;
  // Chunks depend on the shape alone: the sums are the same at any thread count.
  const std::int64_t chunk =
      std::max<std::int64_t>(32, 131072 / std::max<std::int64_t>(1, columns));
  const std::int64_t chunks = std::max<std::int64_t>(1, (rows + chunk - 1) / chunk);
  const auto length = static_cast<std::size_t>(chunks * columns);
  std::vector<A> weight_sums(dweight ? length : 0), bias_sums(dbias ? length : 0);
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      NormRows part = arrays;
      if (dweight) part.dweight = weight_sums.data() + c * columns;
      if (dbias) part.dbias = bias_sums.data() + c * columns;
      loop(part, c * chunk, std::min(rows, (c + 1) * chunk));
    }
  };
  parallel_for(chunks, 1, body);
  combine_partials(dweight, weight_sums, columns, add_dweight);
  combine_partials(dbias, bias_sums, columns, add_dbias);
}

/// Layer norm's backward, or RMS norm's without `mean`, in parts whose sums are added in one order.
void norm_backward(RowLoop<NormRows> loop, const NormRows& arrays, std::int64_t rows,
                   Accumulate type, const WeightGradients& gradients) {
  if (type == Accumulate::f64)
    norm_backward_typed<double>(loop, arrays, rows, gradients);
  else
    norm_backward_typed<float>(loop, arrays, rows, gradients);
}

}  // namespace

void norm::layer_norm(const kernels::LayerNormArguments& a, StreamRef) {
  const Accumulate type = accumulate_of(a.x.dtype);
  const Widened weight(a.weight, type), bias(a.bias, type);
  run_rows(loop_for(loops().rows.layer_norm, "layer_norm", a.x, a.y),
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

void norm::layer_norm_backward(const kernels::LayerNormBackwardArguments& a, StreamRef stream) {
  const Accumulate type = accumulate_of(a.x.dtype);
  const Widened weight(a.weight, type);
  norm_backward(loop_for(loops().rows.layer_norm_backward, "layer_norm_backward", a.x, a.dy),
                {.mean = a.mean.data,
                 .rstd = a.rstd.data,
                 .x = a.x.data,
                 .weight = weight.data(),
                 .dy = a.dy.data,
                 .dx = a.dx.data,
                 .add_dx = a.add_dx,
                 .columns = columns_of(a.x)},
                rows_of(a.x), type,
                {.dweight = a.dweight,
                 .dbias = a.dbias,
                 .add_dweight = a.add_dweight,
                 .add_dbias = a.add_dbias});
  kernels::compute_byproducts(
      a, [&](const kernels::CopyArguments& copy) { elementwise::copy(copy, stream); },
      [&](const kernels::ReduceArguments& sums) { reduction::reduce(sums, stream); });
}

void norm::rms_norm(const kernels::RmsNormArguments& a, StreamRef) {
  const Widened weight(a.weight, accumulate_of(a.x.dtype));
  run_rows(loop_for(loops().rows.rms_norm, "rms_norm", a.x, a.y),
           {.y = a.y.data,
            .rstd = a.rstd.data,
            .x = a.x.data,
            .weight = weight.data(),
            .columns = columns_of(a.x),
            .eps = a.eps},
           a.x);
}

void norm::rms_norm_backward(const kernels::RmsNormBackwardArguments& a, StreamRef) {
  const Accumulate type = accumulate_of(a.x.dtype);
  const Widened weight(a.weight, type);
  norm_backward(loop_for(loops().rows.rms_norm_backward, "rms_norm_backward", a.x, a.dy),
                {.rstd = a.rstd.data,
                 .x = a.x.data,
                 .weight = weight.data(),
                 .dy = a.dy.data,
                 .dx = a.dx.data,
                 .add_dx = a.add_dx,
                 .columns = columns_of(a.x)},
                rows_of(a.x), type, {.dweight = a.dweight, .add_dweight = a.add_dweight});
}

}  // namespace lockstep::cpu_kernels
