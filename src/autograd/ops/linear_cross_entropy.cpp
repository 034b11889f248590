#include <algorithm>
#include <unordered_map>

#include "autograd/ops/common.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/core/thread_kept.hpp"
#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep {

LOCKSTEP_OP(linear_cross_entropy, floating, lower_precision, same)

namespace {

using namespace autograd;

/// Bytes of logits that are held at once if nobody says otherwise.
constexpr std::int64_t logit_bytes_on_cpu = std::int64_t{1} << 27;
/// Of a GPU's memory, they are one part of so many: a chunk reads and writes the weight's gradient,
/// of GPT-2's output layer 0.1 ms on an H100.
constexpr std::int64_t parts_of_memory = 24;

std::int64_t logit_bytes_on(Device device) {
  if (!device.is_cuda()) return logit_bytes_on_cpu;
  thread_local lockstep::detail::KeptByThread<std::unordered_map<int, std::int64_t>> known;
  std::int64_t& bytes = known.get()[device.index];
  if (bytes == 0) {
    const auto [free, total] = device_runtime(device.type).memory_info(device.index);
    bytes = static_cast<std::int64_t>(total) / parts_of_memory;
  }
  return bytes;
}
/// Chunks are a multiple of it, as the tiles of products are.
constexpr std::int64_t row_multiple = 128;

std::int64_t rounded_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Columns of logits in memory. Tensor cores want every side of a product that lies along rows in
/// memory, and the distance of rows, to be multiples of 16 bytes (cuBLAS, "Tensor Core Usage");
/// where they are not, logits and weight get some that stand for no class.
std::int64_t columns_for(std::int64_t classes, const Tensor& weight) {
  constexpr std::int64_t needed = 16, wanted = 128;
  const auto size = static_cast<std::int64_t>(size_of(weight.dtype()));
  const bool fits = !weight.device().is_cuda() || classes * size % needed == 0;
  return fits ? classes : rounded_up(classes * size, wanted) / size;
}

/// The tensor with rows of zeros behind its own. A copy a call, of GPT-2's output layer some 0.1 ms
/// on an H100: parameters of more rows than are theirs would show in checkpoints, optimizers and
/// shards.
Tensor padded(const Tensor& x, std::int64_t rows) {
  if (!x.defined() || x.size(0) == rows) return x;
  Shape shape = x.shape();
  shape[0] = rows;
  Tensor out = empty(shape, x.options());
  out.slice(0, 0, x.size(0)).copy_(x);
  out.slice(0, x.size(0), rows).zero_();
  return out;
}

/// out = a @ b + bias + beta * out, of matrices.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, double beta = 0.0,
              const Tensor& bias = {}) {
  const auto batched = [](const Tensor& matrix) { return matrix.unsqueeze(0).view(); };
  backend_of(out).gemm.multiply(
      {.out = batched(out),
       .a = batched(a),
       .b = batched(b),
       .beta = beta,
       .epilogue = bias.defined() ? kernels::Epilogue::bias : kernels::Epilogue::none,
       .bias = view_or_absent(bias)},
      stream_of(out));
}

/// What losses are computed from.
struct LossOperands {
  Tensor input;    ///< [rows, in]
  Tensor weight;   ///< [columns, in]; 0 from `classes` on
  Tensor bias;     ///< [columns] likewise, or undefined
  Tensor targets;  ///< [rows]
  std::int64_t classes = 0;
  std::int64_t chunk = 0;  ///< rows whose logits are held at once
  kernels::CrossEntropyOptions options = {};

  std::int64_t rows() const { return input.size(0); }
  std::int64_t columns() const { return weight.size(0); }
  DType statistics() const { return statistics_dtype(input.dtype()); }
};

/// Where gradients go; undefined where none is wanted. Those of weight and bias are sums in the
/// statistics dtype, with the rows that stand for no class.
struct Gradients {
  Tensor input, weight, bias;
  bool any() const { return input.defined() || weight.defined() || bias.defined(); }
};

Gradients make_gradients(const LossOperands& of, DType input_dtype, bool input, bool weight,
                         bool bias) {
  const auto make = [&](bool wanted, const Tensor& like, DType dtype) {
    const TensorOptions options{dtype, like.defined() ? like.device() : Device()};
    if (!wanted) return Tensor();
    return of.rows() > 0 ? empty(like.shape(), options) : zeros(like.shape(), options);
  };
  return {make(input, of.input, input_dtype), make(weight, of.weight, of.statistics()),
          make(bias, of.bias, of.statistics())};
}

/// Adds to the gradients what rows from `first` on give, whose logits' gradient is `dlogits`.
void add_gradients(const LossOperands& of, const Gradients& to, const Tensor& dlogits,
                   std::int64_t first) {
  const std::int64_t last = first + dlogits.size(0);
  if (to.input.defined()) multiply(to.input.slice(0, first, last), dlogits, of.weight);
  if (to.weight.defined())
    multiply(to.weight, dlogits.transpose(0, 1), of.input.slice(0, first, last), first > 0);
  if (to.bias.defined())
    backend_of(dlogits).reduction.reduce({.op = ReduceOp::sum,
                                          .out = to.bias.unsqueeze(0).view(),
                                          .in = dlogits.view(),
                                          .accumulate = first > 0},
                                         stream_of(dlogits));
}

/// The losses of the rows and what each counts in a mean, [2, rows], chunk by chunk, and gradients
/// where they are wanted. @param dloss [rows] the losses' gradient; undefined: 1.
Tensor compute(const LossOperands& of, const Gradients& gradients, const Tensor& dloss = {}) {
  const TensorOptions statistics{of.statistics(), of.input.device()};
  const Tensor losses = empty({2, of.rows()}, statistics);
  const Tensor buffer = empty({of.chunk, of.columns()}, of.input.options());
  const Tensor kept = gradients.any() ? Tensor() : empty({of.chunk, 2}, statistics);
  const auto& family = backend_of(of.input).cross_entropy;
  for (std::int64_t first = 0; first < of.rows(); first += of.chunk) {
    const std::int64_t last = std::min(first + of.chunk, of.rows());
    const Tensor logits = buffer.slice(0, 0, last - first), part = losses.slice(1, first, last);
    const ArrayView loss = part.select(0, 0).view(), counts = part.select(0, 1).view(),
                    targets = of.targets.slice(0, first, last).view();
    kernels::CrossEntropyOptions options = of.options;
    options.first_row = first;
    multiply(logits, of.input.slice(0, first, last), of.weight.transpose(0, 1), 0.0, of.bias);
    if (!gradients.any()) {
      family.forward({.loss = loss,
                      .statistics = kept.slice(0, 0, last - first).view(),
                      .row_weight = counts,
                      .logits = logits.slice(1, 0, of.classes).view(),
                      .targets = targets,
                      .options = options},
                     stream_of(logits));
      continue;
    }
    const Tensor slope = dloss.defined() ? dloss.slice(0, first, last) : Tensor();
    family.gradient({.loss = loss,
                     .row_weight = counts,
                     .logits = logits.view(),
                     .classes = of.classes,
                     .targets = targets,
                     .dloss = view_or_absent(slope),
                     .options = options},
                    stream_of(logits));
    add_gradients(of, gradients, logits, first);
  }
  return losses;
}

std::int64_t chunk_of(std::int64_t rows, std::int64_t columns, const Tensor& like,
                      std::int64_t wanted) {
  if (wanted > 0) return std::min(rows, wanted);
  const std::int64_t bytes = logit_bytes_on(like.device());
  const auto row_bytes = columns * static_cast<std::int64_t>(size_of(like.dtype()));
  const std::int64_t most = std::max(row_multiple, bytes / row_bytes);
  const std::int64_t chunks = std::max<std::int64_t>(1, (rows + most - 1) / most);
  return std::min(rows, rounded_up((rows + chunks - 1) / chunks, row_multiple));
}

void check(const Tensor& input, const Tensor& weight, const Tensor& targets,
           const LinearCrossEntropyOptions& options) {
  constexpr std::string_view name = ops::linear_cross_entropy.name;
  LOCKSTEP_CHECK(input.dim() >= 1 && weight.dim() == 2 && weight.size(0) >= 1 &&
                     input.size(-1) == weight.size(1),
                 InvalidArgument, name, ": input of shape ", input.shape(),
                 " does not fit a weight of shape ", weight.shape(), " (classes, in)");
  LOCKSTEP_CHECK(!options.bias.defined() || options.bias.shape() == Shape{weight.size(0)},
                 InvalidArgument, name, ": bias of shape ", options.bias.shape(), " for ",
                 weight.size(0), " classes");
  Shape expected = input.shape();
  expected.erase(expected.size() - 1);
  LOCKSTEP_CHECK(targets.shape() == expected, InvalidArgument, name, ": input of shape ",
                 input.shape(), " needs targets of shape ", expected, ", got ", targets.shape());
  check_index(name, input, targets);
  LOCKSTEP_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, InvalidArgument,
                 name, ": label_smoothing ", options.label_smoothing, " is outside [0, 1]");
  LOCKSTEP_CHECK(options.reduction != Reduction::batch_mean, InvalidArgument, name,
                 ": reduction batch_mean; its mean is over the counted targets");
  LOCKSTEP_CHECK(options.chunk_rows >= 0, InvalidArgument, name, ": chunk_rows ",
                 options.chunk_rows, " is negative; 0 chooses it");
}

using LossCall = OpCall<3>;

LossOperands operands_of(const LossCall& call, const Tensor& targets,
                         const LinearCrossEntropyOptions& options) {
  const Tensor input = call.dense(0), weight = call.dense(1), bias = call.dense(2);
  const std::int64_t classes = weight.size(0), columns = columns_for(classes, weight);
  const std::int64_t rows = targets.numel();
  return {.input = input.reshape({rows, weight.size(1)}),
          .weight = padded(weight, columns),
          .bias = padded(bias, columns),
          .targets = targets.reshape({rows}).contiguous(),
          .classes = classes,
          .chunk = chunk_of(rows, columns, weight, options.chunk_rows),
          .options = {options.ignore_index, options.label_smoothing}};
}

/// Losses of all rows. Logits are computed again in backward, which alone knows what gradient each
/// loss has.
Tensor losses_of_rows(const LossCall& call, const LossOperands& of, const Shape& shape,
                      DType input_dtype) {
  const Tensor losses = compute(of, {}).select(0, 0).reshape(shape);
  if (!call.recording()) return losses;
  return call.record(losses, [input = SavedTensor(of.input), weight = SavedTensor(of.weight),
                              bias = SavedTensor(of.bias), targets = SavedTensor(of.targets),
                              classes = of.classes, chunk = of.chunk, options = of.options,
                              input_dtype](const Tensor& dloss, InputGradients& inputs) {
    const LossOperands again{input.get(), weight.get(), bias.get(), targets.get(),
                             classes,     chunk,        options};
    const Gradients unit =
        make_gradients(again, input_dtype, inputs.wanted(0), inputs.wanted(1), inputs.wanted(2));
    compute(again, unit, dloss.contiguous().reshape({again.rows()}));
    const auto set = [&](std::size_t i, const Tensor& gradient, std::int64_t rows) {
      if (gradient.defined())
        inputs.set(i, gradient.slice(0, 0, rows).reshape(inputs.operand_shape(i)));
    };
    set(0, unit.input, again.rows());
    set(1, unit.weight, classes);
    set(2, unit.bias, classes);
  });
}

/// The sum of all losses, or their mean. Gradients of the sum are there after forward, and backward
/// multiplies them.
Tensor reduced_loss(const LossCall& call, const LossOperands& of, bool mean,
                    const Gradients& unit) {
  const Tensor totals = sum(compute(of, unit), {1});
  const Tensor total = totals.select(0, 0), counted = mean ? totals.select(0, 1) : Tensor();
  const Tensor loss = mean ? total / counted : total;
  if (!call.recording()) return loss;
  return call.record(
      loss, [classes = of.classes, input = SavedTensor(unit.input),
             weight = SavedTensor(unit.weight), bias = SavedTensor(unit.bias),
             counted = SavedTensor(counted)](const Tensor& dloss, InputGradients& inputs) {
        const auto write = [&](std::size_t i, const SavedTensor& saved, bool has_padding) {
          if (!inputs.wanted(i)) return;
          const Tensor gradient = has_padding ? saved.get().slice(0, 0, classes) : saved.get();
          const Shape shape = inputs.operand_shape(i);
          const TensorOptions options{inputs.operand_dtype(i), gradient.device()};
          inputs.write(i, shape, options, [&](const Tensor& out, bool accumulate) {
            backend_of(out).cross_entropy.scale_gradient({.out = out.view(),
                                                          .unit = gradient.reshape(shape).view(),
                                                          .dloss = dloss.view(),
                                                          .counted = view_or_absent(counted.get()),
                                                          .accumulate = accumulate},
                                                         stream_of(out));
          });
        };
        write(1, weight, true);
        write(2, bias, true);
        write(0, input, false);
      });
}

/// The same in f16, which cannot hold gradients of improbable classes before they are scaled
/// (GradScaler): backward, which knows the scale, computes the logits again.
Tensor scaled_loss(const Tensor& input, const Tensor& weight, const Tensor& targets,
                   LinearCrossEntropyOptions options) {
  const bool is_mean = options.reduction == Reduction::mean;
  options.reduction = Reduction::none;
  const Tensor total = sum(linear_cross_entropy(input, weight, targets, options));
  if (!is_mean) return total;
  const auto ignored = static_cast<double>(options.ignore_index);
  return total / sum(ne(targets, ignored).to(total.dtype()));
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& targets,
                            const LinearCrossEntropyOptions& options) {
  check(input, weight, targets, options);
  const LossCall call(ops::linear_cross_entropy, input, weight, options.bias);
  if (options.reduction != Reduction::none && call.recording() &&
      call.dense(1).dtype() == DType::f16)
    return scaled_loss(input, weight, targets, options);
  const NoGradGuard parts_are_not_recorded;
  const LossOperands of = operands_of(call, targets, options);
  // As it was given, or in f32, which products can write and from which it is converted to that.
  const DType given = input.dtype(), used = of.input.dtype();
  const DType input_dtype = used == DType::f64 || given == used ? used : DType::f32;
  if (options.reduction == Reduction::none)
    return losses_of_rows(call, of, targets.shape(), input_dtype);
  const auto wanted = [&](const Tensor& operand) {
    return call.recording() && operand.defined() && operand.requires_grad();
  };
  return reduced_loss(
      call, of, options.reduction == Reduction::mean,
      make_gradients(of, input_dtype, wanted(input), wanted(weight), wanted(options.bias)));
}

}  // namespace lockstep
