#include "lockstep/autograd/ops/norm.hpp"

#include <array>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "autograd/ops/recorded.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/indexing.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/recomputation.hpp"
#include "tensor/random_draw.hpp"

namespace lockstep {

LOCKSTEP_OP(add_embedding, floating, follow, same)
LOCKSTEP_OP(dropout, floating, follow, same)
LOCKSTEP_OP(dropout2d, floating, follow, same)
LOCKSTEP_OP(embedding, floating, follow, same)
LOCKSTEP_OP(layer_norm, floating, f32, same)
LOCKSTEP_OP(rms_norm, floating, f32, same)

namespace {

using namespace autograd;

void check_normalized(std::string_view op, const Tensor& x, const Shape& normalized,
                      const Tensor& weight, const Tensor& bias) {
  const int lead = x.dim() - normalized.size();
  bool fits = lead >= 0 && !normalized.empty();
  for (int i = 0; fits && i < normalized.size(); ++i) fits = normalized[i] == x.shape()[lead + i];
  LOCKSTEP_CHECK(fits, InvalidArgument, op, ": normalized_shape ", normalized,
                 " is not the end of shape ", x.shape());
  for (const Tensor& parameter : {weight, bias}) {
    if (!parameter.defined()) continue;
    LOCKSTEP_CHECK(parameter.shape() == normalized, InvalidArgument, op,
                   ": weight or bias of shape ", parameter.shape(), ", expected ", normalized);
  }
}

/// A contiguous x as [rows, columns] with the normalised dimensions joined.
Tensor as_rows(const Tensor& x, std::int64_t columns) {
  return no_grad([&] { return x.reshape({columns ? x.numel() / columns : 0, columns}); });
}

/// The view of `as_rows`; absent if undefined.
ArrayView rows_or_absent(const Tensor& x, std::int64_t columns) {
  return x.defined() ? as_rows(x, columns).view() : ArrayView{};
}

/// A contiguous parameter in one dimension; absent if undefined.
ArrayView flat_view(const Tensor& parameter) {
  if (!parameter.defined()) return {};
  return {parameter.data_ptr(), parameter.dtype(), {parameter.numel()}, {1}};
}

/// The dtype of a norm's result.
/// @param x as the norm computes with it
DType result_dtype(const Tensor& x, NormResult result) {
  const auto device = static_cast<std::size_t>(x.device().type);
  const bool is_lower = result == NormResult::for_products && x.dtype() == DType::f32;
  return is_lower ? thread_modes.autocast_dtype[device] : x.dtype();
}

kernels::NormByproducts views_of(const GradientByproducts& more, std::int64_t columns) {
  kernels::NormByproducts views{.dx_sums = view_or_absent(more.dx_sums.tensor),
                                .dx_totals = view_or_absent(more.dx_totals),
                                .dx_copy = rows_or_absent(more.dx_copy, columns),
                                .summand = view_or_absent(more.summand),
                                .sums = view_or_absent(more.sums.tensor),
                                .add_dx_sums = more.dx_sums.accumulate,
                                .add_sums = more.sums.accumulate};
  std::int64_t first = 0;
  for (std::size_t i = 0; i < views.parts.size() && more.summand.defined(); ++i) {
    const auto& part = more.known.parts[i];
    const Tensor rows = part.rows.defined() || part.is_zero || part.columns == 0
                            ? part.rows
                            : more.summand.slice(1, first, first + part.columns);
    views.parts[i] = {part.columns, view_or_absent(rows), view_or_absent(part.weights)};
    first += part.columns;
  }
  return views;
}

/// x scaled to a mean square of 1 along the last dimensions, by recorded ops.
Tensor by_root_mean_square(const Tensor& x, const Dims& dims, double eps) {
  return x * rsqrt(mean(square(x), dims, true) + eps);
}

/// The last dimensions, as many as a shape has.
Dims last_dims(const Shape& normalized) {
  Dims dims;
  for (int i = -normalized.size(); i < 0; ++i) dims.push_back(i);
  return dims;
}

struct LayerNormBackward {
  static constexpr bool sums_columns = true, is_differentiable = true;
  Shape normalized_shape;
  std::int64_t columns;
  double eps;
  SavedTensor x, weight, mean, rstd;

  /// The same from recorded ops.
  void record(const Tensor& dy, InputGradients& inputs) const {
    const DType wide = mean.get().dtype();
    set_composed(
        inputs, dy,
        {inputs.operand(0, x), inputs.operand(1, weight), unread_operand(inputs, 2, dy.device())},
        [&](std::span<const Tensor> in) {
          const Dims dims = last_dims(normalized_shape);
          const Tensor rows = in[0].to(wide);
          Tensor y = by_root_mean_square(rows - lockstep::mean(rows, dims, true), dims, eps);
          if (in[1].defined()) y = y * in[1].to(wide);
          return in[2].defined() ? y + in[2].to(wide) : y;
        });
  }
  void operator()(const Tensor& dy_in, InputGradients& inputs) const {
    if (inputs.creates_graph()) return record(dy_in, inputs);
    const Tensor &input = x.get(), &scale = weight.get();
    const Tensor dy = dy_in.contiguous();
    const std::array<GradientPart, 3> parts{{{1, normalized_shape, input.options()},
                                             {2, normalized_shape, input.options()},
                                             {0, input.shape(), input.options()}}};
    inputs.write_together(parts, [&](const std::array<GradientTarget, 3>& targets) {
      const auto& [dweight, dbias, dx] = targets;
      GradientByproducts more;
      if (norms_sum_biases(dy) && (dweight.tensor.defined() || dbias.tensor.defined()))
        more = inputs.byproducts(0, normalized_shape.size() == 1 ? dx.tensor : Tensor(),
                                 input.options(), dy.dtype());
      backend_of(dy).norm.layer_norm_backward({.dx = rows_or_absent(dx.tensor, columns),
                                               .dweight = flat_view(dweight.tensor),
                                               .dbias = flat_view(dbias.tensor),
                                               .dy = as_rows(dy, columns).view(),
                                               .x = as_rows(input, columns).view(),
                                               .weight = flat_view(scale),
                                               .mean = mean.get().view(),
                                               .rstd = rstd.get().view(),
                                               .add_dx = dx.accumulate,
                                               .add_dweight = dweight.accumulate,
                                               .add_dbias = dbias.accumulate,
                                               .byproducts = views_of(more, columns)},
                                              stream_of(dy));
    });
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x_in, const Shape& normalized_shape, const Tensor& weight_in,
                  const Tensor& bias_in, double eps, NormResult result) {
  const OpCall call(ops::layer_norm, x_in, weight_in, bias_in);
  check_normalized(call.name(), x_in, normalized_shape, weight_in, bias_in);
  const std::int64_t columns = numel(normalized_shape);
  const Tensor x = call.dense(0), weight = call.dense(1), bias = call.dense(2);
  const Tensor rows = as_rows(x, columns);
  const TensorOptions statistics{statistics_dtype(x.dtype()), x.device()};
  const Tensor mean = empty({rows.size(0)}, statistics), rstd = empty({rows.size(0)}, statistics);
  Tensor y = empty(x.shape(), {result_dtype(x, result), x.device()});
  backend_of(x).norm.layer_norm({.y = as_rows(y, columns).view(),
                                 .mean = mean.view(),
                                 .rstd = rstd.view(),
                                 .x = rows.view(),
                                 .weight = flat_view(weight),
                                 .bias = flat_view(bias),
                                 .eps = eps},
                                stream_of(x));
  if (!call.recording()) return y;
  return call.record(
      y, LayerNormBackward{normalized_shape, columns, eps, SavedTensor(x), SavedTensor(weight),
                           SavedTensor(mean), SavedTensor(rstd)});
}

Tensor rms_norm(const Tensor& x_in, const Shape& normalized_shape, const Tensor& weight_in,
                double eps, NormResult result) {
  const OpCall call(ops::rms_norm, x_in, weight_in);
  check_normalized(call.name(), x_in, normalized_shape, weight_in, {});
  const std::int64_t columns = numel(normalized_shape);
  const Tensor x = call.dense(0), weight = call.dense(1);
  const Tensor rows = as_rows(x, columns);
  const Tensor rstd = empty({rows.size(0)}, {statistics_dtype(x.dtype()), x.device()});
  Tensor y = empty(x.shape(), {result_dtype(x, result), x.device()});
  backend_of(x).norm.rms_norm({.y = as_rows(y, columns).view(),
                               .rstd = rstd.view(),
                               .x = rows.view(),
                               .weight = flat_view(weight),
                               .eps = eps},
                              stream_of(x));
  if (!call.recording()) return y;
  return call.record(
      y, Differentiable{[normalized_shape, columns, eps, x = SavedTensor(x),
                         weight = SavedTensor(weight),
                         rstd = SavedTensor(rstd)](const Tensor& dy_in, InputGradients& inputs) {
        if (inputs.creates_graph())
          return set_composed(inputs, dy_in, {inputs.operand(0, x), inputs.operand(1, weight)},
                              [&](std::span<const Tensor> in) {
                                const DType wide = rstd.get().dtype();
                                const Tensor scaled = by_root_mean_square(
                                    in[0].to(wide), last_dims(normalized_shape), eps);
                                return in[1].defined() ? scaled * in[1].to(wide) : scaled;
                              });
        const Tensor &input = x.get(), &scale = weight.get();
        const Tensor dy = dy_in.contiguous();
        const std::array<GradientPart, 2> parts{
            {{1, normalized_shape, input.options()}, {0, input.shape(), input.options()}}};
        inputs.write_together(parts, [&](const std::array<GradientTarget, 2>& targets) {
          const auto& [dweight, dx] = targets;
          backend_of(dy).norm.rms_norm_backward({.dx = rows_or_absent(dx.tensor, columns),
                                                 .dweight = flat_view(dweight.tensor),
                                                 .dy = as_rows(dy, columns).view(),
                                                 .x = as_rows(input, columns).view(),
                                                 .weight = flat_view(scale),
                                                 .rstd = rstd.get().view(),
                                                 .add_dx = dx.accumulate,
                                                 .add_dweight = dweight.accumulate},
                                                stream_of(dy));
        });
      }});
}

namespace {
/// A contiguous [..., columns] as [rows, columns].
Tensor as_table(const Tensor& x, std::int64_t rows) {
  return no_grad([&] { return x.reshape({rows, x.size(-1)}); });
}

/// What is added to the rows, as [rows, columns]; undefined if nothing is.
/// @throws InvalidArgument unless its shape is the end of the result's.
Tensor addend_rows(std::string_view op, const Tensor& addend, const Shape& result) {
  if (!addend.defined()) return {};
  Shape shape = addend.shape();
  while (shape.size() > 1 && shape[0] == 1) shape.erase(0);
  const int lead = result.size() - shape.size();
  bool fits = lead >= 0 && addend.dim() <= result.size() && !shape.empty();
  for (int i = 0; fits && i < shape.size(); ++i) fits = shape[i] == result[lead + i];
  LOCKSTEP_CHECK(fits, InvalidArgument, op, ": addend of shape ", addend.shape(),
                 " is not the end of the result's, ", result);
  const std::int64_t columns = shape.back();
  return no_grad([&] {
    return addend.contiguous().reshape({columns ? addend.numel() / columns : 1, columns});
  });
}

/// Operand 0 of the call is the table, and operand 1, if there is one, what is added.
template <class Call>
Tensor look_up(const Call& call, const Tensor& index_in, const Tensor& addend,
               std::int64_t padding_index) {
  const Tensor& table = call[0];
  LOCKSTEP_CHECK(index_in.dtype() == DType::i64, InvalidArgument, call.name(),
                 ": the index has dtype ", index_in.dtype(), ", it must be i64");
  LOCKSTEP_CHECK(table.dim() == 2, InvalidArgument, call.name(), ": the table has shape ",
                 table.shape(), ", it must have two dimensions");
  LOCKSTEP_CHECK(index_in.device() == table.device(), InvalidArgument, call.name(),
                 ": the index is on ", index_in.device(), ", the table on ", table.device());
  const Tensor index = index_in.contiguous().reshape({index_in.numel()});
  const Tensor rows = call.dense(0);
  Shape shape = index_in.shape();
  shape.push_back(table.size(1));
  const Tensor added = addend_rows(call.name(), addend, shape);
  Tensor out = empty(shape, table.options());
  backend_of(table).embedding.forward({.out = as_table(out, index.numel()).view(),
                                       .table = rows.view(),
                                       .index = index.view(),
                                       .addend = view_or_absent(added)},
                                      stream_of(table));
  if (!call.recording()) return out;
  const auto backward = [padding_index, adds = addend.defined(), index = SavedTensor(index)](
                            const Tensor& dy_in, InputGradients& inputs) {
    const Tensor dy = dy_in.contiguous();
    if (adds) write_sum_to(inputs, 1, dy);
    if (!inputs.wanted(0)) return;
    const auto add_rows = [&](const Tensor& gradient, const Tensor& dtable, bool accumulate) {
      backend_of(dtable).embedding.backward({.dtable = dtable.view(),
                                             .dy = as_table(gradient, index.get().numel()).view(),
                                             .index = index.get().view(),
                                             .padding_index = padding_index,
                                             .accumulate = accumulate},
                                            stream_of(dtable));
    };
    if (!inputs.creates_graph())
      return inputs.write(
          0, inputs.operand_shape(0), dy.options(),
          [&](const Tensor& dtable, bool accumulate) { add_rows(dy, dtable, accumulate); });
    const auto scattered = [&](const Tensor& gradient) {
      const Tensor dtable = empty(inputs.operand_shape(0), gradient.options());
      add_rows(gradient, dtable, false);
      return dtable;
    };
    const auto read = [padding_index, index, result = dy.shape()](const Tensor& ddx) {
      const Tensor found = embedding(index.get(), ddx);
      if (padding_index < 0) return found.reshape(result);
      return masked_fill(found, (index.get() == padding_index).unsqueeze(1), 0.0).reshape(result);
    };
    inputs.set(0, adjoint(inputs, ops::embedding.name, dy, scattered, read));
  };
  return call.record(out, Differentiable{backward});
}
}  // namespace

Tensor embedding(const Tensor& index, const Tensor& table, std::int64_t padding_index) {
  LOCKSTEP_CHECK(index.dtype() == DType::i64, InvalidArgument, ops::embedding.name,
                 ": the index, which comes before the table, has dtype ", index.dtype(),
                 "; it must be i64");
  return look_up(OpCall(ops::embedding, table), index, {}, padding_index);
}

Tensor add_embedding(const Tensor& addend, const Tensor& index, const Tensor& table,
                     std::int64_t padding_index) {
  LOCKSTEP_CHECK(addend.defined(), InvalidArgument, ops::add_embedding.name,
                 ": the addend is undefined; embedding adds nothing");
  return look_up(OpCall(ops::add_embedding, table, addend), index, addend, padding_index);
}

namespace {

/// A gradient through dropout, and one of that, and so on: the same elements are dropped.
Tensor dropped_alike(const InputGradients& inputs, const Tensor& dy, double p,
                     const RandomDraw& draw) {
  const auto dropped = [&](const Tensor& given) {
    const Tensor x = given.contiguous();
    Tensor out = empty(x.shape(), x.options());
    backend_of(x).random.dropout({.out = out.view(), .x = x.view(), .p = p, .random = draw.place()},
                                 stream_of(x));
    return out;
  };
  if (!inputs.creates_graph()) return dropped(dy);
  // Elements are dropped or multiplied: by what, is a constant.
  const Tensor factors = no_grad([&] { return dropped(ones(dy.shape(), dy.options())); });
  return where(factors > 0.0, dy * factors, 0);
}

/// Whether gradients flow through it or not: what comes behind it is another.
void note_mode_of_dropout(double p) { Recomputation::note_choice("the mode of dropout", p); }

}  // namespace

Tensor dropout(const Tensor& x_in, double p, bool training) {
  LOCKSTEP_CHECK(p >= 0 && p <= 1, InvalidArgument, ops::dropout.name, ": probability ", p,
                 " is outside [0, 1]");
  const OpCall call(ops::dropout, x_in);
  note_mode_of_dropout(training ? p : 0);
  if (!training || p == 0) return x_in;
  const Tensor x = call.dense(0);
  const RandomDraw draw(default_generator(), stream_of(x));
  Tensor y = empty(x.shape(), x.options());
  backend_of(x).random.dropout({.out = y.view(), .x = x.view(), .p = p, .random = draw.place()},
                               stream_of(x));
  if (!call.recording()) return y;
  return call.record(y, Differentiable{[p, draw](const Tensor& dy, InputGradients& inputs) {
                       inputs.set(0, dropped_alike(inputs, dy, p, draw));
                     }});
}

Tensor dropout2d(const Tensor& x, double p, bool training) {
  const ComposedOp call(ops::dropout2d, x);
  LOCKSTEP_CHECK(x.dim() >= 3, InvalidArgument, call.name(),
                 ": needs channels [N, C, ...], got shape ", x.shape());
  LOCKSTEP_CHECK(p >= 0 && p <= 1, InvalidArgument, call.name(), ": probability ", p,
                 " is outside [0, 1]");
  note_mode_of_dropout(training ? p : 0);
  if (!training || p == 0) return x;
  Shape channels = Dims::filled(x.dim(), 1);
  channels[0] = x.size(0);
  channels[1] = x.size(1);
  return x * dropout(ones(channels, x.options()), p);
}

}  // namespace lockstep
