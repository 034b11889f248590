#include "backend/rows.hpp"

#include <algorithm>

#include "backend/reference/families.hpp"
#include "cpu/rows.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::backend {
namespace {

using host::Accumulate;
using host::RowLoops;
using host::Widened;

std::int64_t columns_of(const ArrayView& view) { return view.rank() ? view.shape.back() : 1; }

std::int64_t rows_of(const ArrayView& view) {
  const std::int64_t columns = columns_of(view);
  return columns ? view.numel() / columns : 0;
}

std::size_t require(std::string_view op, std::initializer_list<const ArrayView*> arrays) {
  const DType dtype = (*arrays.begin())->dtype;
  LOCKSTEP_CHECK(is_floating(dtype), Unsupported, op, ": dtype ", dtype,
                 " is not offered on device cpu");
  for (const ArrayView* array : arrays) {
    LOCKSTEP_CHECK(array->dtype == dtype, InvalidArgument, op, ": dtypes ", dtype, " and ",
                   array->dtype, " differ");
    LOCKSTEP_CHECK(host::contiguous_count(*array) >= 0, InvalidArgument, op,
                   ": needs contiguous arrays, got strides ", array->strides, " for shape ",
                   array->shape);
  }
  return static_cast<std::size_t>(dtype);
}

template <class Arguments>
void run(host::RowLoop<Arguments> loop, const Arguments& arguments, const ArrayView& like) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, host::parallel_grain / std::max<std::int64_t>(1, columns_of(like)));
  parallel_for(rows_of(like), grain,
               [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

void check_targets(const ArrayView& targets, std::int64_t classes, std::int64_t ignore_index) {
  LOCKSTEP_CHECK(targets.dtype == DType::i64 && host::contiguous_count(targets) >= 0,
                 InvalidArgument, "cross_entropy: targets must be contiguous i64, got ",
                 targets.dtype);
  const auto* target = targets.as<std::int64_t>();
  for (std::int64_t i = 0, n = targets.numel(); i < n; ++i)
    LOCKSTEP_CHECK(target[i] == ignore_index || (target[i] >= 0 && target[i] < classes),
                   InvalidArgument, "cross_entropy: target ", target[i], " of row ", i,
                   " is outside [0, ", classes, ") and is not the ignored ", ignore_index);
}

class ReferenceRows final : public Rows {
 public:
  void softmax(const ArrayView& y, const ArrayView& x, bool log, StreamRef) override {
    const auto dtype = require("softmax", {&x, &y});
    run(loops().softmax[dtype], {.out = y.data, .x = x.data, .columns = columns_of(x), .log = log},
        x);
  }

  void softmax_backward(const ArrayView& dx, const ArrayView& dy, const ArrayView& y, bool log,
                        StreamRef) override {
    const auto dtype = require("softmax_backward", {&y, &dy, &dx});
    run(loops().softmax_backward[dtype],
        {.out = dx.data, .dy = dy.data, .y = y.data, .columns = columns_of(y), .log = log}, y);
  }

  void cross_entropy(const ArrayView& loss, const ArrayView& statistics,
                     const ArrayView& row_weight, const ArrayView& logits, const ArrayView& targets,
                     const ArrayView& weight, CrossEntropyOptions options, StreamRef) override {
    const auto dtype = require("cross_entropy", {&logits});
    check_targets(targets, columns_of(logits), options.ignore_index);
    const Widened weights(weight, host::accumulate_of(logits.dtype));
    auto arguments = describe(logits, targets, weights, statistics, options);
    arguments.loss = loss.data;
    arguments.row_weight = row_weight.data;
    run(loops().cross_entropy[dtype], arguments, logits);
  }

  void cross_entropy_backward(const ArrayView& dlogits, const ArrayView& dloss,
                              const ArrayView& logits, const ArrayView& targets,
                              const ArrayView& weight, const ArrayView& statistics,
                              CrossEntropyOptions options, StreamRef) override {
    const auto dtype = require("cross_entropy_backward", {&logits, &dlogits});
    const Widened weights(weight, host::accumulate_of(logits.dtype));
    auto arguments = describe(logits, targets, weights, statistics, options);
    arguments.dlogits = dlogits.data;
    arguments.dloss = dloss.data;
    arguments.dloss_stride = dloss.rank() ? dloss.strides.back() : 0;
    run(loops().cross_entropy_backward[dtype], arguments, logits);
  }

  void layer_norm(const ArrayView& y, const ArrayView& mean, const ArrayView& rstd,
                  const ArrayView& x, const ArrayView& weight, const ArrayView& bias, double eps,
                  StreamRef) override {
    const auto dtype = require("layer_norm", {&x, &y});
    const Accumulate type = host::accumulate_of(x.dtype);
    const Widened weights(weight, type), biases(bias, type);
    run(loops().layer_norm[dtype],
        {.y = y.data,
         .mean = mean.data,
         .rstd = rstd.data,
         .x = x.data,
         .weight = weights.data(),
         .bias = biases.data(),
         .columns = columns_of(x),
         .eps = eps},
        x);
  }

  void layer_norm_backward(const ArrayView& dx, const ArrayView& dweight, const ArrayView& dbias,
                           const ArrayView& dy, const ArrayView& x, const ArrayView& weight,
                           const ArrayView& mean, const ArrayView& rstd, bool accumulate,
                           StreamRef) override {
    const auto dtype = require("layer_norm_backward", {&x, &dy});
    const Accumulate type = host::accumulate_of(x.dtype);
    const Widened weights(weight, type);
    host::norm_backward(loops().layer_norm_backward[dtype],
                        {.mean = mean.data,
                         .rstd = rstd.data,
                         .x = x.data,
                         .weight = weights.data(),
                         .dy = dy.data,
                         .dx = dx.data,
                         .columns = columns_of(x)},
                        rows_of(x), type, dweight, dbias, accumulate);
  }

  void rms_norm(const ArrayView& y, const ArrayView& rstd, const ArrayView& x,
                const ArrayView& weight, double eps, StreamRef) override {
    const auto dtype = require("rms_norm", {&x, &y});
    const Widened weights(weight, host::accumulate_of(x.dtype));
    run(loops().rms_norm[dtype],
        {.y = y.data,
         .rstd = rstd.data,
         .x = x.data,
         .weight = weights.data(),
         .columns = columns_of(x),
         .eps = eps},
        x);
  }

  void rms_norm_backward(const ArrayView& dx, const ArrayView& dweight, const ArrayView& dy,
                         const ArrayView& x, const ArrayView& weight, const ArrayView& rstd,
                         bool accumulate, StreamRef) override {
    const auto dtype = require("rms_norm_backward", {&x, &dy});
    const Accumulate type = host::accumulate_of(x.dtype);
    const Widened weights(weight, type);
    host::norm_backward(loops().rms_norm_backward[dtype],
                        {.rstd = rstd.data,
                         .x = x.data,
                         .weight = weights.data(),
                         .dy = dy.data,
                         .dx = dx.data,
                         .columns = columns_of(x)},
                        rows_of(x), type, dweight, {}, accumulate);
  }

  void embedding(const ArrayView& out, const ArrayView& table, const ArrayView& index,
                 StreamRef) override {
    require("embedding", {&table, &out});
    host::embedding(out, table, index);
  }

  void embedding_backward(const ArrayView& dtable, const ArrayView& dy, const ArrayView& index,
                          std::int64_t padding_index, bool accumulate, StreamRef) override {
    require("embedding_backward", {&dtable, &dy});
    host::embedding_backward(dtable, dy, index, padding_index, accumulate);
  }

 private:
  static const RowLoops& loops() { return host::loops().rows; }

  static host::CrossEntropyArguments describe(const ArrayView& logits, const ArrayView& targets,
                                              const Widened& weights, const ArrayView& statistics,
                                              const CrossEntropyOptions& options) {
    return {.logits = logits.data,
            .targets = targets.as<const std::int64_t>(),
            .weight = weights.data(),
            .statistics = statistics.data,
            .classes = columns_of(logits),
            .ignore_index = options.ignore_index,
            .smoothing = options.label_smoothing};
  }
};

}  // namespace

Rows& reference_rows() {
  static ReferenceRows family;
  return family;
}

}  // namespace lockstep::backend
