#include "arguments/cross_entropy.hpp"

#include <array>

#include "cpu/rows.hpp"
#include "cpu/widened.hpp"
#include "functional/cross_entropy.hpp"

namespace lockstep::cpu_kernels {
namespace {

void check_targets(const ArrayView& targets, std::int64_t classes,
                   const kernels::CrossEntropyOptions& options) {
  LOCKSTEP_CHECK(targets.dtype == DType::i64 && contiguous_count(targets) >= 0, InvalidArgument,
                 "cross_entropy: targets must be contiguous i64, got ", targets.dtype);
  const auto* target = targets.as<std::int64_t>();
  for (std::int64_t i = 0, n = targets.numel(); i < n; ++i)
    LOCKSTEP_CHECK(target[i] == options.ignore_index || (target[i] >= 0 && target[i] < classes),
                   InvalidArgument, "cross_entropy: target ", target[i], " of row ",
                   options.first_row + i, " is outside [0, ", classes, ") and is not the ignored ",
                   options.ignore_index);
}

/// From one row to the next. @throws InvalidArgument for rows that are not dense; without elements
/// all are.
std::int64_t pitch_of(std::string_view op, const ArrayView& logits) {
  if (logits.numel() == 0) return columns_of(logits);
  const bool is_dense = logits.rank() == 2 && (logits.strides[1] == 1 || logits.shape[1] <= 1);
  LOCKSTEP_CHECK(is_dense && (logits.shape[0] <= 1 || logits.strides[0] >= logits.shape[1]),
                 InvalidArgument, op, ": logits need dense rows, got strides ", logits.strides,
                 " for shape ", logits.shape);
  return logits.strides[0];
}

/// What both directions read.
template <class Arguments>
CrossEntropyRows row_arguments(const Arguments& a, const Widened& weight) {
  return {.logits = a.logits.data,
          .targets = a.targets.template as<const std::int64_t>(),
          .weight = weight.data(),
          .statistics = a.statistics.data,
          .classes = columns_of(a.logits),
          .ignore_index = a.options.ignore_index,
          .pitch = columns_of(a.logits),
          .smoothing = a.options.label_smoothing};
}

}  // namespace

void cross_entropy::forward(const kernels::CrossEntropyArguments& a, StreamRef) {
  const auto dtype = floating_index("cross_entropy", a.logits.dtype);
  check_targets(a.targets, columns_of(a.logits), a.options);
  const Widened weight(a.weight, accumulate_of(a.logits.dtype));
  auto rows = row_arguments(a, weight);
  rows.pitch = pitch_of("cross_entropy", a.logits);
  rows.loss = a.loss.data;
  rows.row_weight = a.row_weight.data;
  run_rows(loops().rows.cross_entropy[dtype], rows, a.logits);
}

void cross_entropy::backward(const kernels::CrossEntropyBackwardArguments& a, StreamRef) {
  const auto dtype = require_rows("cross_entropy_backward", {&a.logits, &a.dlogits});
  const Widened weight(a.weight, accumulate_of(a.logits.dtype));
  auto rows = row_arguments(a, weight);
  rows.dlogits = a.dlogits.data;
  rows.dloss = a.dloss.data;
  rows.dloss_stride = a.dloss.rank() ? a.dloss.strides.back() : 0;
  run_rows(loops().rows.cross_entropy_backward[dtype], rows, a.logits);
}

void cross_entropy::gradient(const kernels::CrossEntropyGradientArguments& a, StreamRef) {
  const auto dtype = floating_index("cross_entropy", a.logits.dtype);
  check_targets(a.targets, a.classes, a.options);
  const CrossEntropyRows rows{.logits = a.logits.data,
                              .targets = a.targets.as<const std::int64_t>(),
                              .loss = a.loss.data,
                              .row_weight = a.row_weight.data,
                              .dlogits = a.logits.data,
                              .dloss = a.dloss ? a.dloss.data : nullptr,
                              .dloss_stride = a.dloss ? a.dloss.strides[0] : 0,
                              .classes = a.classes,
                              .ignore_index = a.options.ignore_index,
                              .pitch = pitch_of("cross_entropy", a.logits),
                              .padding = columns_of(a.logits) - a.classes,
                              .smoothing = a.options.label_smoothing};
  run_rows(loops().rows.cross_entropy_gradient[dtype], rows, a.logits);
}

void cross_entropy::scale_gradient(const kernels::ScaleGradientArguments& a, StreamRef) {
  const Accumulate type = accumulate_of(a.out.dtype);
  const auto one = [](const ArrayView& view) {
    if (!view) return 1.0;
    return view.dtype == DType::f64 ? *view.as<double>() : double{*view.as<float>()};
  };
  const OpConstants constants{.alpha = functional::gradient_factor(one(a.dloss), one(a.counted))};
  const auto scale = loops().unary(type, UnaryOp::affine);
  const auto add = loops().binary(type, BinaryOp::add);
  const std::array operands{TileOperand::output(a.out), TileOperand::input(a.out),
                            TileOperand::input(a.unit)};
  const auto nest = make_loop_nest(a.out.shape, {&a.out.strides, &a.out.strides, &a.unit.strides});
  run_tiled(nest, operands, [&](void* const* p, std::int64_t n) {
    if (a.accumulate)
      add(p[0], p[1], p[2], n, constants);
    else
      scale(p[0], p[2], n, constants);
  });
}

}  // namespace lockstep::cpu_kernels
