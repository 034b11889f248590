#include "lockstep/autograd/ops/recurrent.hpp"

#include "autograd/ops/common.hpp"
#include "autograd/ops/recorded.hpp"
#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/shape.hpp"

// A layer is one op: the inputs of all steps are one product, each step is one product and one
// kernel, and the gradients of the weights are one product each over all steps.

namespace lockstep {

LOCKSTEP_OP(gru, floating, lower_precision, same)
LOCKSTEP_OP(lstm, floating, lower_precision, same)

namespace {

using namespace autograd;

/// Places of the operands.
enum Operand : std::size_t { x_at, w_ih_at, w_hh_at, b_ih_at, b_hh_at, h_at, c_at };

/// Extents of one layer, and the order of its steps.
struct RecurrentLayer {
  std::int64_t steps, sequences, features, gates;
  bool reverse;

  /// Where in memory the n-th step lies.
  std::int64_t place(std::int64_t n) const { return reverse ? steps - 1 - n : n; }
  std::int64_t rows() const { return steps * sequences; }
  Shape state() const { return {sequences, features}; }
};

void check_shape(std::string_view op, std::string_view what, const Tensor& tensor,
                 const Shape& expected) {
  LOCKSTEP_CHECK(!tensor.defined() || tensor.shape() == expected, InvalidArgument, op, ": ", what,
                 " has shape ", tensor.shape(), ", expected ", expected);
}

RecurrentLayer recurrent_layer_of(std::string_view op, std::int64_t gates, const Tensor& x,
                                  const Tensor& h, const Tensor& c, const RecurrentWeights& weights,
                                  bool reverse) {
  LOCKSTEP_CHECK(x.dim() == 3 && x.size(0) > 0, InvalidArgument, op,
                 ": needs sequences of at least one step, [T, N, in], got shape ", x.shape());
  LOCKSTEP_CHECK(weights.input.defined() && weights.hidden.defined() && weights.hidden.dim() == 2 &&
                     weights.hidden.size(0) > 0,
                 InvalidArgument, op, ": needs weights [", gates, " h, in] and [", gates, " h, h]");
  const RecurrentLayer layer{x.size(0), x.size(1), weights.hidden.size(1), gates, reverse};
  const std::int64_t wide = gates * layer.features;
  check_shape(op, "the weight of the input", weights.input, {wide, x.size(2)});
  check_shape(op, "the weight of the state", weights.hidden, {wide, layer.features});
  check_shape(op, "the input's bias", weights.input_bias, {wide});
  check_shape(op, "the state's bias", weights.hidden_bias, {wide});
  LOCKSTEP_CHECK(weights.input_bias.defined() == weights.hidden_bias.defined(), InvalidArgument, op,
                 ": one of the two biases is missing");
  check_shape(op, "the first state h", h, layer.state());
  check_shape(op, "the first state c", c, layer.state());
  return layer;
}

/// A state before the first step: as given, or 0.
Tensor state_or_zero(const Tensor& given, const RecurrentLayer& layer, TensorOptions options) {
  return given.defined() ? given.to(options.dtype).contiguous() : zeros(layer.state(), options);
}

/// `rows` rows of a contiguous tensor, from row `first` on, as a matrix.
ArrayView rows_of(const Tensor& tensor, std::int64_t first, std::int64_t rows) {
  const std::int64_t columns = tensor.size(-1);
  auto* const data = static_cast<std::byte*>(tensor.data_ptr()) +
                     first * columns * static_cast<std::int64_t>(size_of(tensor.dtype()));
  return {data, tensor.dtype(), {rows, columns}, {columns, 1}};
}
ArrayView all_rows(const Tensor& tensor) {
  const std::int64_t columns = tensor.size(-1);
  return rows_of(tensor, 0, columns ? tensor.numel() / columns : 0);
}
/// One step of a sequence [T, N, columns].
ArrayView step_of(const Tensor& sequence, const RecurrentLayer& layer, std::int64_t place) {
  return rows_of(sequence, place * layer.sequences, layer.sequences);
}
ArrayView step_or_absent(const Tensor& sequence, const RecurrentLayer& layer, std::int64_t place) {
  return sequence.defined() ? step_of(sequence, layer, place) : ArrayView{};
}

ArrayView transpose_of(ArrayView matrix) {
  std::swap(matrix.shape[0], matrix.shape[1]);
  std::swap(matrix.strides[0], matrix.strides[1]);
  return matrix;
}

/// Products of matrices on one device.
class Products {
 public:
  explicit Products(const Tensor& where)
      : multiply_(backend_of(where).gemm.multiply), stream_(stream_of(where)) {}

  /// out = a b + bias + beta out.
  void operator()(const ArrayView& out, const ArrayView& a, const ArrayView& b, double beta = 0,
                  const Tensor& bias = {}) const {
    if (out.numel() == 0) return;
    multiply_({.out = batch_of_one(out),
               .a = batch_of_one(a),
               .b = batch_of_one(b),
               .beta = beta,
               .epilogue = bias.defined() ? kernels::Epilogue::bias : kernels::Epilogue::none,
               .bias = view_or_absent(bias)},
              stream_);
  }

 private:
  static ArrayView batch_of_one(ArrayView matrix) {
    matrix.shape.insert(0, 1);
    matrix.strides.insert(0, 0);
    return matrix;
  }
  decltype(kernels::GemmKernels::multiply) multiply_;
  StreamRef stream_;
};

/// Adds up the rows.
void sum_rows(const Tensor& out, const Tensor& rows, bool accumulate) {
  ArrayView row = out.view();
  row.shape = {1, out.size(0)};
  row.strides = {out.size(0), 1};
  backend_of(out).reduction.reduce(
      {.op = ReduceOp::sum, .out = row, .in = all_rows(rows), .accumulate = accumulate},
      stream_of(out));
}

/// What backward needs of both kinds of layer.
struct Saved {
  RecurrentLayer layer;
  SavedTensor x, w_ih, w_hh, h, y, gates;
  SavedTensor b_ih, b_hh;  // for recorded gradients alone

  /// With their places in the graph. @param c undefined for a GRU
  std::vector<Tensor> operands(const InputGradients& inputs, const SavedTensor& c = {}) const {
    return {inputs.operand(x_at, x),
            inputs.operand(w_ih_at, w_ih),
            inputs.operand(w_hh_at, w_hh),
            inputs.operand(b_ih_at, b_ih),
            inputs.operand(b_hh_at, b_hh),
            inputs.operand(h_at, h),
            c.get().defined() ? inputs.operand(c_at, c) : Tensor()};
  }
};

/// What a layer computes step by step, from recorded ops.
/// @param step (the input's part, the state's part) [N, g h] of the gates, states h and c in the
/// statistics dtype: the next ones
/// @return y, and c of the last step
template <class Step>
std::vector<Tensor> recorded_steps(const RecurrentLayer& layer, std::span<const Tensor> in,
                                   const Step& step) {
  const DType dtype = in[x_at].dtype(), wide = statistics_dtype(dtype);
  const Tensor from_input = linear(in[x_at], in[w_ih_at], in[b_ih_at]).to(wide);
  Tensor h = in[h_at].to(wide), c = in[c_at].defined() ? in[c_at].to(wide) : Tensor();
  std::vector<Tensor> states(static_cast<std::size_t>(layer.steps));
  for (std::int64_t n = 0; n < layer.steps; ++n) {
    const std::int64_t place = layer.place(n);
    const Tensor from_state = linear(h.to(dtype), in[w_hh_at], in[b_hh_at]).to(wide);
    std::tie(h, c) = step(from_input.select(0, place), from_state, h, c);
    states[static_cast<std::size_t>(place)] = h;
  }
  std::vector<Tensor> results{stack(states, 0).to(dtype)};
  if (c.defined()) results.push_back(c.to(dtype));
  return results;
}

std::pair<Tensor, Tensor> recorded_lstm_step(const Tensor& from_input, const Tensor& from_state,
                                             const Tensor& /*h*/, const Tensor& c) {
  const std::vector<Tensor> gates = chunk(from_input + from_state, 4, 1);
  const Tensor next = sigmoid(gates[1]) * c + sigmoid(gates[0]) * tanh(gates[2]);
  return {sigmoid(gates[3]) * tanh(next), next};
}

std::pair<Tensor, Tensor> recorded_gru_step(const Tensor& from_input, const Tensor& from_state,
                                            const Tensor& h, const Tensor& /*c*/) {
  const std::vector<Tensor> input = chunk(from_input, 3, 1), state = chunk(from_state, 3, 1);
  const Tensor update = sigmoid(input[1] + state[1]);
  const Tensor candidate = tanh(input[2] + sigmoid(input[0] + state[0]) * state[2]);
  return {candidate + update * (h - candidate), Tensor()};
}

/// Hands over the gradients of weights and biases, then of x.
/// @param dgates of the part of the input [T, N, g h]. @param drecurrent of the state's part.
void set_gradients(InputGradients& inputs, const Saved& saved, const Tensor& dgates,
                   const Tensor& drecurrent) {
  const RecurrentLayer& layer = saved.layer;
  const Tensor &x = saved.x.get(), &w_ih = saved.w_ih.get(), &w_hh = saved.w_hh.get();
  const Products product(x);
  const auto bias = [&](std::size_t operand, const Tensor& gradient) {
    inputs.write(operand, {w_hh.size(0)}, gradient_options(inputs, operand, x),
                 [&](const Tensor& out, bool accumulate) { sum_rows(out, gradient, accumulate); });
  };
  bias(b_hh_at, drecurrent);
  bias(b_ih_at, dgates);
  inputs.write(w_hh_at, w_hh.shape(), gradient_options(inputs, w_hh_at, x),
               [&](const Tensor& out, bool accumulate) {
                 product(out.view(), transpose_of(step_of(drecurrent, layer, layer.place(0))),
                         all_rows(saved.h.get()), accumulate);
                 // All later steps at once, each with the state of the one before.
                 const std::int64_t later = (layer.steps - 1) * layer.sequences,
                                    one = layer.sequences;
                 const std::int64_t to = layer.reverse ? 0 : one, from = layer.reverse ? one : 0;
                 if (later > 0)
                   product(out.view(), transpose_of(rows_of(drecurrent, to, later)),
                           rows_of(saved.y.get(), from, later), 1.0);
               });
  inputs.write(w_ih_at, w_ih.shape(), gradient_options(inputs, w_ih_at, x),
               [&](const Tensor& out, bool accumulate) {
                 product(out.view(), transpose_of(all_rows(dgates)), all_rows(x), accumulate);
               });
  inputs.write(x_at, x.shape(), gradient_options(inputs, x_at, x),
               [&](const Tensor& out, bool accumulate) {
                 product(all_rows(out), all_rows(dgates), w_ih.view(), accumulate);
               });
}

/// A gradient of the states of all steps as the kernels take it; undefined where none came.
Tensor dense_gradient(const Tensor& dy) { return dy.defined() ? dy.contiguous() : dy; }

}  // namespace

std::pair<Tensor, Tensor> lstm_layer(const Tensor& x_in, const Tensor& h_in, const Tensor& c_in,
                                     const RecurrentWeights& weights, bool reverse) {
  const OpCall call(ops::lstm, x_in, weights.input, weights.hidden, weights.input_bias,
                    weights.hidden_bias, h_in, c_in);
  const RecurrentLayer layer =
      recurrent_layer_of(call.name(), 4, x_in, h_in, c_in, weights, reverse);
  const Tensor x = call.dense(x_at), w_ih = call.dense(w_ih_at), w_hh = call.dense(w_hh_at);
  const TensorOptions state_options{statistics_dtype(x.dtype()), x.device()};
  const auto [h, c, bias] = no_grad([&] {
    const Tensor& b_ih = call[b_ih_at];
    return std::tuple(state_or_zero(call[h_at], layer, x.options()),
                      state_or_zero(call[c_at], layer, state_options),
                      b_ih.defined() ? b_ih + call[b_hh_at] : Tensor());
  });
  const Tensor gates = empty({layer.steps, layer.sequences, 4 * layer.features}, x.options());
  const Tensor states = empty({layer.steps, layer.sequences, layer.features}, state_options);
  Tensor outputs[2] = {empty(states.shape(), x.options()), empty(layer.state(), x.options())};
  const Tensor &y = outputs[0], &c_last = outputs[1];
  const Products product(x);
  product(all_rows(gates), all_rows(x), transpose_of(w_ih.view()), 0.0, bias);
  ArrayView h_before = h.view(), c_before = c.view();
  for (std::int64_t n = 0; n < layer.steps; ++n) {
    const std::int64_t place = layer.place(n);
    const ArrayView gate = step_of(gates, layer, place);
    product(gate, h_before, transpose_of(w_hh.view()), 1.0);
    const kernels::LstmCellArguments step{.h = step_of(y, layer, place),
                                          .c = step_of(states, layer, place),
                                          .gates = gate,
                                          .c_before = c_before};
    backend_of(x).recurrent.lstm_cell(step, stream_of(x));
    h_before = step.h;
    c_before = step.c;
  }
  backend_of(x).elementwise.copy({.out = c_last.view(), .in = c_before}, stream_of(x));
  if (!call.recording()) return {y, c_last};
  call.record_outputs(
      outputs,
      Differentiable{[saved = Saved{layer, SavedTensor(x), SavedTensor(w_ih), SavedTensor(w_hh),
                                    SavedTensor(h), SavedTensor::of_result(y), SavedTensor(gates),
                                    SavedTensor(call[b_ih_at]), SavedTensor(call[b_hh_at])},
                      c = SavedTensor(c), states = SavedTensor(states)](
                         std::span<const Tensor> gradients, InputGradients& inputs) {
        const RecurrentLayer& steps = saved.layer;
        if (inputs.creates_graph())
          return set_composed(inputs, gradients, saved.operands(inputs, c),
                              [&](std::span<const Tensor> in) {
                                return recorded_steps(steps, in, recorded_lstm_step);
                              });
        const Tensor &kept = states.get(), &activated = saved.gates.get();
        const Tensor dy = dense_gradient(gradients[0]);
        const Tensor dgates = empty(activated.shape(), activated.options());
        const Tensor dh = empty(steps.state(), activated.options());
        const Tensor dc = zeros(steps.state(), kept.options());
        if (gradients[1].defined()) Tensor(dc).copy_(gradients[1]);
        const Products multiply(kept);
        for (std::int64_t n = steps.steps - 1; n >= 0; --n) {
          const std::int64_t place = steps.place(n);
          const bool last = n + 1 == steps.steps;
          backend_of(kept).recurrent.lstm_cell_backward(
              {.dgates = step_of(dgates, steps, place),
               .dc = dc.view(),
               .dy = step_or_absent(dy, steps, place),
               .dh = last ? ArrayView{} : dh.view(),
               .gates = step_of(activated, steps, place),
               .c = step_of(kept, steps, place),
               .c_before = n > 0 ? step_of(kept, steps, steps.place(n - 1)) : c.get().view()},
              stream_of(kept));
          if (n > 0 || inputs.wanted(h_at))
            multiply(dh.view(), step_of(dgates, steps, place), saved.w_hh.get().view());
        }
        set_gradients(inputs, saved, dgates, dgates);
        inputs.set(c_at, dc);
        if (inputs.wanted(h_at)) inputs.set(h_at, dh);
      }});
  return {outputs[0], outputs[1]};
}

Tensor gru_layer(const Tensor& x_in, const Tensor& h_in, const RecurrentWeights& weights,
                 bool reverse) {
  const OpCall call(ops::gru, x_in, weights.input, weights.hidden, weights.input_bias,
                    weights.hidden_bias, h_in);
  const RecurrentLayer layer = recurrent_layer_of(call.name(), 3, x_in, h_in, {}, weights, reverse);
  const Tensor x = call.dense(x_at), w_ih = call.dense(w_ih_at), w_hh = call.dense(w_hh_at);
  const Tensor h = no_grad([&] { return state_or_zero(call[h_at], layer, x.options()); });
  const Tensor b_ih = call.dense(b_ih_at), b_hh = call.dense(b_hh_at);
  const std::int64_t wide = 3 * layer.features;
  const Tensor gates = empty({layer.steps, layer.sequences, wide}, x.options());
  const Tensor recurrent = empty({layer.sequences, wide}, x.options());
  const Tensor y = empty({layer.steps, layer.sequences, layer.features}, x.options());
  const Tensor candidates = empty(y.shape(), x.options());
  const Products product(x);
  product(all_rows(gates), all_rows(x), transpose_of(w_ih.view()), 0.0, b_ih);
  ArrayView h_before = h.view();
  for (std::int64_t n = 0; n < layer.steps; ++n) {
    const std::int64_t place = layer.place(n);
    product(recurrent.view(), h_before, transpose_of(w_hh.view()), 0.0, b_hh);
    const kernels::GruCellArguments step{.h = step_of(y, layer, place),
                                         .gates = step_of(gates, layer, place),
                                         .candidate = step_of(candidates, layer, place),
                                         .recurrent = recurrent.view(),
                                         .h_before = h_before};
    backend_of(x).recurrent.gru_cell(step, stream_of(x));
    h_before = step.h;
  }
  if (!call.recording()) return y;
  return call.record(
      y, Differentiable{[saved = Saved{layer, SavedTensor(x), SavedTensor(w_ih), SavedTensor(w_hh),
                                       SavedTensor(h), SavedTensor::of_result(y),
                                       SavedTensor(gates), SavedTensor(b_ih), SavedTensor(b_hh)},
                         candidates = SavedTensor(candidates)](const Tensor& dy_in,
                                                               InputGradients& inputs) {
        const RecurrentLayer& steps = saved.layer;
        if (inputs.creates_graph())
          return set_composed(inputs, {&dy_in, 1}, saved.operands(inputs),
                              [&](std::span<const Tensor> in) {
                                return recorded_steps(steps, in, recorded_gru_step);
                              });
        const Tensor &states = saved.y.get(), &activated = saved.gates.get();
        const Tensor dy = dense_gradient(dy_in);
        const Tensor dgates = empty(activated.shape(), activated.options());
        const Tensor drecurrent = empty(activated.shape(), activated.options());
        const Tensor dh = empty(steps.state(), activated.options());
        const Products multiply(states);
        for (std::int64_t n = steps.steps - 1; n >= 0; --n) {
          const std::int64_t place = steps.place(n);
          backend_of(states).recurrent.gru_cell_backward(
              {.dgates = step_of(dgates, steps, place),
               .drecurrent = step_of(drecurrent, steps, place),
               .dh_before = dh.view(),
               .dy = step_or_absent(dy, steps, place),
               .dh = n + 1 == steps.steps ? ArrayView{} : dh.view(),
               .gates = step_of(activated, steps, place),
               .candidate = step_of(candidates.get(), steps, place),
               .h_before =
                   n > 0 ? step_of(states, steps, steps.place(n - 1)) : saved.h.get().view()},
              stream_of(states));
          if (n > 0 || inputs.wanted(h_at))
            multiply(dh.view(), step_of(drecurrent, steps, place), saved.w_hh.get().view(), 1.0);
        }
        set_gradients(inputs, saved, dgates, drecurrent);
        if (inputs.wanted(h_at)) inputs.set(h_at, dh);
      }});
}

}  // namespace lockstep
