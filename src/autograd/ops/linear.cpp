#include <array>

#include "autograd/ops/composed.hpp"
#include "autograd/ops/products.hpp"
#include "autograd/ops/recorded.hpp"
#include "lockstep/autograd/cast_cache.hpp"
#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/thread_modes.hpp"

namespace lockstep {

LOCKSTEP_OP(linear, floating, lower_precision, same)
LOCKSTEP_OP(add_linear, floating, lower_precision, own)
LOCKSTEP_OP(mlp, floating, lower_precision, own)

namespace {

using namespace autograd;
using kernels::Epilogue;
using kernels::GemmArguments;

/// Of ops that convert what they multiply themselves: an addend keeps its digits.
constexpr OpDescriptor without_casts(OpDescriptor op) {
  op.autocast = AutocastPolicy::follow;
  return op;
}
constexpr OpDescriptor add_linear_op = without_casts(ops::add_linear);
constexpr OpDescriptor mlp_op = without_casts(ops::mlp);

/// The gradients of a linear layer's weight (operand 1) and, unless another op computes it, bias
/// (operand 2), by one product where both are wanted.
void write_parameter_gradients(InputGradients& inputs, const Tensor& dy, const Tensor& x,
                               const Tensor& weight, bool with_bias) {
  if (!with_bias)
    return inputs.write(
        1, weight.shape(),
        inputs.wanted(1) ? gradient_options(inputs, 1, weight) : weight.options(),
        [&](const Tensor& dw, bool accumulate) {
          multiply(dw,
                   {.a = transposed(batched(dy)), .b = batched(x), .beta = accumulate ? 1.0 : 0.0});
        });
  const auto options = [&](std::size_t i) {
    return inputs.wanted(i) ? gradient_options(inputs, i, weight) : weight.options();
  };
  const std::array<GradientPart, 2> parts{
      {{2, {weight.size(0)}, options(2)}, {1, weight.shape(), options(1)}}};
  inputs.write_together(parts, [&](const std::array<GradientTarget, 2>& targets) {
    const auto& [db, dw] = targets;
    if (!dw.tensor.defined()) {
      if (db.tensor.defined())
        backend_of(dy).reduction.reduce({.op = ReduceOp::sum,
                                         .out = db.tensor.reshape({1, weight.size(0)}).view(),
                                         .in = dy.view(),
                                         .accumulate = db.accumulate},
                                        stream_of(dy));
      return;
    }
    GemmArguments call{
        .a = transposed(batched(dy)), .b = batched(x), .beta = dw.accumulate ? 1.0 : 0.0};
    if (db.tensor.defined()) {
      call.epilogue = Epilogue::bias_gradient;
      call.bias = db.tensor.view();
      call.accumulate_bias = db.accumulate;
    }
    multiply(dw.tensor, call);
  });
}

struct LinearBackward;

/// The operands of a linear layer, as its product takes them.
struct LinearLayer {
  Tensor x;  ///< [rows, in]
  Tensor weight, bias;
  Shape out;  ///< shape of the output

  GemmArguments product() const {
    return {.a = batched(x),
            .b = transposed(batched(weight)),
            .epilogue = bias.defined() ? Epilogue::bias : Epilogue::none,
            .bias = view_or_absent(bias)};
  }
  LinearBackward backward(const Tensor& before_gelu = {}) const;
};

/// Not recorded. @throws InvalidArgument for shapes or dtypes that do not fit.
LinearLayer linear_layer_of(std::string_view op, const Tensor& x, const Tensor& weight,
                            const Tensor& bias) {
  LOCKSTEP_CHECK(weight.dim() == 2 && x.dim() >= 1 && x.size(-1) == weight.size(1), InvalidArgument,
                 op, ": input of shape ", x.shape(), " does not fit a weight of shape ",
                 weight.shape(), " (out, in)");
  check_alike(op, x, weight);
  LOCKSTEP_CHECK(!bias.defined() || bias.shape() == Shape{weight.size(0)}, InvalidArgument, op,
                 ": bias of shape ", bias.shape(), " does not fit ", weight.size(0), " outputs");
  Shape out = x.shape();
  out.back() = weight.size(0);
  const NoGradGuard no_recording;
  return {dense_matrix(as_matrix(x)), dense_matrix(weight),
          bias.defined() ? bias.contiguous() : bias, out};
}

/// Gradients of x (operand 0), weight (1) and bias (2).
struct LinearBackward {
  static constexpr bool uses_column_sums = true, is_differentiable = true;
  SavedTensor x, weight;
  DType dtype;                   ///< of both
  SavedTensor before_gelu = {};  ///< operand 0 where x is its GELU
  bool is_gelu = false;
  bool runs_again = thread_modes.recomputation != nullptr;

  /// In a part of the forward that runs again the bias's gradient is not final before that: a hook
  /// may write to the bias.
  GradientUses gradient_uses() const noexcept {
    return {.column_sums = runs_again ? -1 : 2, .copy = dtype, .passes_sums = is_gelu ? -1 : 0};
  }

  /// @param passes_on whether dy goes on as the gradient of another operand
  void operator()(const Tensor& dy_in, InputGradients& inputs, bool passes_on = false) const {
    if (inputs.creates_graph()) return record(dy_in, inputs);
    const Tensor& w = weight.get();
    const bool may_stay = !passes_on && InputGradients::is_exclusive(dy_in);
    const Tensor dy = dense_matrix(as_matrix(inputs.converted(dy_in, dtype)));
    const bool is_left = may_stay && norms_sum_biases(dy) && inputs.leave_column_sums(2, 0, dy);
    write_parameter_gradients(inputs, dy, x.get(), w, !is_left);
    if (!inputs.wanted(0)) return;
    // dx = dy W, and so are their sums.
    const Tensor totals = is_gelu ? Tensor() : inputs.column_sums().totals;
    GemmArguments product{.a = batched(dy), .b = batched(w)};
    if (const Tensor& input = before_gelu.get(); input.defined()) {
      product.epilogue = Epilogue::dgelu;
      product.aux = batched(as_matrix(input));
    }
    inputs.write(0, inputs.operand_shape(0), gradient_options(inputs, 0, w),
                 [&](const Tensor& dx, bool accumulate) {
                   product.beta = accumulate ? 1.0 : 0.0;
                   multiply(as_matrix(dx), product);
                   if (totals.defined() && !accumulate)
                     inputs.pass_column_sums(0, dx, {.parts = {{{w.size(1), w, totals}}}});
                 });
  }

 private:
  /// The same from recorded ops.
  void record(const Tensor& dy_in, InputGradients& inputs) const {
    const Tensor given = inputs.operand(0, is_gelu ? before_gelu : x);
    const Tensor w = inputs.operand(1, weight), dy = as_matrix(dy_in.to(dtype));
    if (inputs.wanted(1)) {
      const Tensor rows = is_gelu ? gelu(given, GeluApproximation::tanh) : given;
      inputs.set(1, matmul(dy.t(), as_matrix(rows)));
    }
    if (inputs.wanted(2)) inputs.set(2, sum(dy, {0}));
    if (!inputs.wanted(0)) return;
    const Tensor dx = matmul(dy, w).reshape(given.shape());
    inputs.set(0, is_gelu ? recorded_gradient(UnaryOp::gelu_tanh, dx, given, {}, {}) : dx);
  }
};

/// The same, and that of an addend (operand 3).
struct AddProductBackward {
  static constexpr bool uses_column_sums = true, is_differentiable = true;
  LinearBackward product;

  GradientUses gradient_uses() const noexcept { return product.gradient_uses(); }
  void operator()(const Tensor& dy, InputGradients& inputs) const {
    product(dy, inputs, inputs.wanted(3));
    inputs.set(3, dy);
  }
};

LinearBackward LinearLayer::backward(const Tensor& before_gelu) const {
  return {SavedTensor(x), SavedTensor(weight), x.dtype(), SavedTensor(before_gelu),
          before_gelu.defined()};
}

Tensor in_dtype(const Tensor& x, DType dtype) {
  return x.defined() && x.dtype() != dtype ? cast_operand(x, dtype) : x;
}

/// A factor as mixed precision has it, not recorded.
Tensor factor(const Tensor& x) {
  const DType lower = thread_modes.autocast_dtype[static_cast<std::size_t>(x.device().type)];
  const bool follows = lower == DType::f32 || !is_floating(x.dtype()) || x.dtype() == DType::f64;
  return follows ? x : in_dtype(x, lower);
}

void check_addend(std::string_view op, const Tensor& addend, const Tensor& x, const Shape& shape) {
  LOCKSTEP_CHECK(addend.shape() == shape, InvalidArgument, op, ": addend of shape ", addend.shape(),
                 "; the product has ", shape);
  check_same_device(op, x, addend);
  const bool wider = addend.dtype() == DType::f32 && x.dtype() != DType::f64;
  LOCKSTEP_CHECK(addend.dtype() == x.dtype() || wider, InvalidArgument, op, ": addend of dtype ",
                 addend.dtype(), " to a product of ", x.dtype(), "; give it as ", x.dtype(),
                 x.dtype() == DType::f64 || x.dtype() == DType::f32 ? "" : " or f32");
}

/// addend + linear(x, weight, bias), which are the operands of the call in the order x, weight,
/// bias, addend; with `activated`, that instead of x, which is its input before GELU.
Tensor add_product(const OpCall<4>& call, const Tensor& activated = {}) {
  const Tensor before = activated.defined() ? call[0] : Tensor();
  const Tensor x = factor(activated.defined() ? activated : call[0]);
  const Tensor& addend = call[3];
  const DType dtype = addend.defined() ? addend.dtype() : x.dtype();
  const LinearLayer layer =
      linear_layer_of(call.name(), x, factor(call[1]), in_dtype(call[2], dtype));
  GemmArguments product = layer.product();
  Tensor dense_addend;
  if (addend.defined()) {
    check_addend(call.name(), addend, x, layer.out);
    dense_addend = no_grad([&] { return dense_matrix(as_matrix(addend)); });
    product.addend = batched(dense_addend);
    product.beta = 1.0;
  }
  Tensor out = empty(layer.out, {dtype, x.device()});
  multiply(as_matrix(out), product);
  if (!call.recording()) return out;
  return call.record(out, AddProductBackward{layer.backward(before)});
}

/// The hidden layer of a perceptron.
struct Hidden {
  Tensor activated;  ///< not recorded
  Tensor before;     ///< recorded; undefined where nothing is
};

Hidden hidden_layer(const Tensor& x_in, const MlpWeights& weights) {
  const OpCall call(mlp_op, x_in, weights.hidden_weight, weights.hidden_bias);
  const Tensor x = factor(call[0]);
  const LinearLayer layer =
      linear_layer_of(call.name(), x, factor(call[1]), in_dtype(call[2], x.dtype()));
  Hidden hidden{.activated = empty(layer.out, x.options()), .before = {}};
  GemmArguments product = layer.product();
  product.epilogue = Epilogue::gelu_bias;
  if (call.recording()) {
    hidden.before = empty(layer.out, x.options());
    product.aux = batched(as_matrix(hidden.before));
  }
  multiply(as_matrix(hidden.activated), product);
  if (call.recording()) hidden.before = call.record(hidden.before, layer.backward());
  return hidden;
}

}  // namespace

Tensor linear(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in) {
  const OpCall call(ops::linear, x_in, weight_in, bias_in);
  const Tensor& x = call[0];
  const LinearLayer layer = linear_layer_of(call.name(), x, call[1], call[2]);
  Tensor out = empty(layer.out, x.options());
  multiply(as_matrix(out), layer.product());
  if (!call.recording()) return out;
  return call.record(out, layer.backward());
}

Tensor add_linear(const Tensor& addend, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  LOCKSTEP_CHECK(addend.defined(), InvalidArgument, ops::add_linear.name,
                 ": the addend is undefined; linear adds nothing");
  return add_product(OpCall(add_linear_op, x, weight, bias, addend));
}

Tensor mlp(const Tensor& x, const MlpWeights& weights, const MlpOptions& options) {
  const auto& [hidden_weight, hidden_bias, out_weight, out_bias] = weights;
  if (options.approximation == GeluApproximation::tanh && hidden_bias.defined()) {
    const Hidden hidden = hidden_layer(x, weights);
    const bool recorded = hidden.before.defined();
    Engine::begin_op();
    const OpCall call(mlp_op, recorded ? hidden.before : hidden.activated, out_weight, out_bias,
                      options.addend);
    return add_product(call, recorded ? hidden.activated : Tensor());
  }
  const ComposedOp<0> call(ops::mlp);
  const Tensor hidden = gelu(linear(x, hidden_weight, hidden_bias), options.approximation);
  return options.addend.defined() ? add_linear(options.addend, hidden, out_weight, out_bias)
                                  : linear(hidden, out_weight, out_bias);
}

}  // namespace lockstep
