#include "arguments/cross_entropy.hpp"

#include "cpu/rows.hpp"
#include "cpu/widened.hpp"

namespace lockstep::cpu_kernels {
namespace {

void check_targets(const ArrayView& targets, std::int64_t classes, std::int64_t ignore_index) {
  LOCKSTEP_CHECK(targets.dtype == DType::i64 && contiguous_count(targets) >= 0, InvalidArgument,
                 "cross_entropy: targets must be contiguous i64, got ", targets.dtype);
  const auto* target = targets.as<std::int64_t>();
  for (std::int64_t i = 0, n = targets.numel(); i < n; ++i)
    LOCKSTEP_CHECK(target[i] == ignore_index || (target[i] >= 0 && target[i] < classes),
                   InvalidArgument, "cross_entropy: target ", target[i], " of row ", i,
                   " is outside [0, ", classes, ") and is not the ignored ", ignore_index);
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
          .smoothing = a.options.label_smoothing};
}

}  // namespace

void cross_entropy::forward(const kernels::CrossEntropyArguments& a, StreamRef) {
  const auto dtype = require_rows("cross_entropy", {&a.logits});
  check_targets(a.targets, columns_of(a.logits), a.options.ignore_index);
  const Widened weight(a.weight, accumulate_of(a.logits.dtype));
  auto rows = row_arguments(a, weight);
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

}  // namespace lockstep::cpu_kernels
