#include "arguments/gemm.hpp"

#include <algorithm>

#include "arguments/bias_gradient.hpp"
#include "arguments/elementwise.hpp"
#include "arguments/reduction.hpp"
#include "backend/cuda/epilogue_choice.hpp"
#include "backend/cuda/lt_plan.hpp"
#include "cuda/scratch.hpp"
#include "lockstep/core/deterministic.hpp"
#include "lockstep/core/float32_precision.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep::cuda_kernels {
namespace {

using kernels::Epilogue;
using kernels::GemmArguments;

/// What an address is a multiple of: up to 16, or 256, which whole blocks of memory are. Nothing
/// between: each is a plan of its own.
std::uint16_t alignment(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address % 256 == 0 && !deterministic_algorithms()) return 256;
  const auto limited = address | 16;
  return static_cast<std::uint16_t>(limited & ~(limited - 1));
}

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

/// The product as cuBLASLt sees it: a row-major product is the column-major product of the
/// transposes, in swapped order.
struct Mapped {
  LtProblem problem;
  LtOperands operands;
};

Mapped map(const GemmArguments& call, Epilogue epilogue, int device) {
  const LtMatrix out = lt_matrix(call.out);
  const ArrayView& addend = call.addend ? call.addend : call.out;
  const bool swap = out.row_major;
  const ArrayView& first = swap ? call.b : call.a;
  const ArrayView& second = swap ? call.a : call.b;
  Mapped mapped{{.a = lt_matrix(first), .b = lt_matrix(second), .c = lt_matrix(addend), .d = out},
                {.a = first.data,
                 .b = second.data,
                 .c = addend.data,
                 .d = call.out.data,
                 .bias = nullptr,
                 .aux = nullptr,
                 .beta = call.beta}};
  LtProblem& problem = mapped.problem;
  problem.transpose_a = problem.a.row_major != swap;
  problem.transpose_b = problem.b.row_major != swap;
  problem.accumulate = call.beta != 0.0;
  problem.epilogue = epilogue;
  problem.dtype = call.a.dtype;
  problem.out_dtype = call.out.dtype;
  problem.device = device;
  problem.batch = call.out.shape[0];
  problem.tf32 = call.a.dtype == DType::f32 && float32_precision() == Float32Precision::tf32;
  problem.align_a = alignment(first.data);
  problem.align_b = alignment(second.data);
  problem.align_c = alignment(addend.data);
  problem.align_d = alignment(call.out.data);
  if (uses_bias(epilogue)) mapped.operands.bias = call.bias.data;
  if ((epilogue == Epilogue::gelu_bias || epilogue == Epilogue::dgelu) && call.aux) {
    problem.keeps_aux = true;
    mapped.operands.aux = call.aux.data;
    problem.align_aux = alignment(call.aux.data);
    problem.aux_batch_stride = problem.batch > 1 ? call.aux.shape[1] * call.aux.shape[2] : 0;
  }
  return mapped;
}

/// True if cuBLASLt's rules let the epilogue run inside the product.
bool fusible(const GemmArguments& call, int device) {
  if (call.epilogue == Epilogue::none) return true;
  const DType out_dtype = call.out.dtype;
  if (out_dtype == DType::f64 || call.a.shape[2] == 0) return false;
  const bool gelu = call.epilogue == Epilogue::gelu_bias || call.epilogue == Epilogue::dgelu;
  if (gelu && (out_dtype != call.a.dtype || !fuses_gelu(device))) return false;
  const LtMatrix out = lt_matrix(call.out);
  if (!out.row_major) return false;  // bias and aux run along the columns
  // By the table of types the bias has D's. The heuristics take its alignment from its pointer,
  // which a plan does not have: it serves all that are aligned as a chosen kernel may want.
  const bool bias_fits = call.bias && call.bias.dtype == out_dtype && call.bias.strides[0] == 1 &&
                         is_aligned(call.bias.data);
  if (!gelu) return bias_fits;
  // Its accumulation comes before the function, ours after it; aux has rules of alignment.
  const bool aux_fits = !call.aux || (out.rows % 8 == 0 && is_aligned(call.aux.data));
  return call.beta == 0.0 && aux_fits && (call.epilogue == Epilogue::dgelu || bias_fits);
}

ArrayView broadcast_bias(const GemmArguments& call) {
  ArrayView bias = call.bias;
  bias.strides = {0, 0, call.bias.strides[0]};
  bias.shape = call.out.shape;
  return bias;
}

bool try_product(const GemmArguments& call, Epilogue epilogue, StreamRef stream) {
  if (call.a.shape[2] == 0) return false;
  const Mapped mapped = map(call, epilogue, stream.device.index);
  return lt_plan(mapped.problem).run(mapped.operands, stream);
}

/// What a product of empty depth leaves.
void scale(const GemmArguments& call, StreamRef stream) {
  if (call.beta == 0.0) return elementwise::fill({.out = call.out, .value = 0.0}, stream);
  if (call.beta != 1.0)
    elementwise::unary({.op = UnaryOp::affine,
                        .y = call.out,
                        .x = call.out,
                        .constants = {.alpha = call.beta, .beta = 0.0}},
                       stream);
}

/// out = a b + beta out, nothing else.
void product(const GemmArguments& call, StreamRef stream) {
  if (call.a.shape[2] == 0) return scale(call, stream);
  LOCKSTEP_CHECK(try_product(call, Epilogue::none, stream), Unsupported, "gemm: cuBLASLt has no ",
                 call.a.dtype, " product into ", call.out.dtype, " of shapes ", call.a.shape,
                 " and ", call.b.shape, " with strides ", call.a.strides, " and ", call.b.strides);
}

void add_bias(const GemmArguments& call, StreamRef stream) {
  product(call, stream);
  elementwise::binary(
      {.op = BinaryOp::add, .out = call.out, .a = call.out, .b = broadcast_bias(call)}, stream);
}

/// Lets `compute` fill the output, or with beta a scratch array that is then added to it.
template <class Compute>
void finish(const GemmArguments& call, StreamRef stream, Compute&& compute) {
  if (call.beta == 0.0) return compute(call.out);
  const auto elements = static_cast<std::size_t>(call.out.numel());
  const Scratch scratch(elements * size_of(call.out.dtype), stream);
  const ArrayView sum{scratch.data(), call.out.dtype, call.out.shape,
                      contiguous_strides(call.out.shape)};
  compute(sum);
  elementwise::binary({.op = BinaryOp::add,
                       .out = call.out,
                       .a = sum,
                       .b = call.out,
                       .constants = {.alpha = call.beta, .beta = 0.0}},
                      stream);
}

void gelu_bias(const GemmArguments& call, StreamRef stream) {
  finish(call, stream, [&](const ArrayView& to) {
    GemmArguments inner = call;
    inner.out = call.aux ? call.aux : to;
    inner.beta = 0.0;
    add_bias(inner, stream);
    elementwise::unary({.op = UnaryOp::gelu_tanh, .y = to, .x = inner.out}, stream);
  });
}

void dgelu(const GemmArguments& call, StreamRef stream) {
  finish(call, stream, [&](const ArrayView& to) {
    GemmArguments inner = call;
    inner.out = to;
    inner.beta = 0.0;
    product(inner, stream);
    elementwise::unary_backward({.op = UnaryOp::gelu_tanh, .dx = to, .dy = to, .saved = call.aux},
                                stream);
  });
}

/// The sums of a's rows, which the product reads anyway, come out of it; what they are added to is
/// read by a kernel of a few elements.
void bias_gradient(const GemmArguments& call, StreamRef stream) {
  const Scratch sums(call.accumulate_bias
                         ? static_cast<std::size_t>(call.bias.numel()) * size_of(call.bias.dtype)
                         : 0,
                     stream);
  GemmArguments fused = call;
  if (call.accumulate_bias)
    fused.bias = {sums.data(), call.bias.dtype, call.bias.shape,
                  contiguous_strides(call.bias.shape)};
  const int device = stream.device.index;
  if (!fuses_bias_gradient(device) || !fusible(fused, device) ||
      !try_product(fused, Epilogue::bias_gradient, stream)) {
    reduction::reduce(kernels::bias_gradient(call), stream);
    return product(call, stream);
  }
  if (call.accumulate_bias)
    elementwise::binary({.op = BinaryOp::add, .out = call.bias, .a = call.bias, .b = fused.bias},
                        stream);
}

/// Those of cuBLASLt's kernels that number the products by a grid's y or z extent take fewer than
/// 2^16, and for some problems it has no others.
constexpr std::int64_t most_products = 1 << 15;

/// The products [first, first + count) of a batch.
GemmArguments products_of(const GemmArguments& call, std::int64_t first, std::int64_t count) {
  GemmArguments part = call;
  for (ArrayView* view : {&part.out, &part.a, &part.b, &part.addend, &part.aux}) {
    if (!*view) continue;
    const std::int64_t bytes =
        first * view->strides[0] * static_cast<std::int64_t>(size_of(view->dtype));
    view->data = static_cast<std::byte*>(view->data) + bytes;
    view->shape[0] = count;
  }
  return part;
}

/// True where cuBLASLt can read the addend as its C: in D's memory order, and as it is for
/// functions that come before the addition, as it does them after it.
bool reads_addend(const GemmArguments& call) {
  const bool linear = call.epilogue == Epilogue::none || call.epilogue == Epilogue::bias;
  return linear && call.a.shape[2] > 0 &&
         lt_matrix(call.addend).row_major == lt_matrix(call.out).row_major;
}

void multiply_part(const GemmArguments& call, StreamRef stream) {
  if (call.addend && !reads_addend(call)) {
    elementwise::copy({.out = call.out, .in = call.addend}, stream);
    GemmArguments in_place = call;
    in_place.addend = {};
    return multiply_part(in_place, stream);
  }
  if (call.epilogue == Epilogue::bias_gradient) return bias_gradient(call, stream);
  if (fusible(call, stream.device.index) && try_product(call, call.epilogue, stream)) return;
  switch (call.epilogue) {
    case Epilogue::none: return product(call, stream);
    case Epilogue::bias: return add_bias(call, stream);
    case Epilogue::gelu_bias: return gelu_bias(call, stream);
    case Epilogue::dgelu: return dgelu(call, stream);
    case Epilogue::bias_gradient: break;
  }
}

}  // namespace

void gemm::multiply(const GemmArguments& call, StreamRef stream) {
  if (call.out.numel() == 0) {
    if (call.epilogue == Epilogue::bias_gradient)
      reduction::reduce(kernels::bias_gradient(call), stream);
    return;
  }
  LOCKSTEP_CHECK(is_floating(call.a.dtype), Unsupported, "gemm: dtype ", call.a.dtype,
                 " on device ", stream.device);
  const CudaDeviceGuard guard(stream.device.index);
  const std::int64_t batch = call.out.shape[0];
  if (batch <= most_products) return multiply_part(call, stream);
  for (std::int64_t first = 0; first < batch; first += most_products)
    multiply_part(products_of(call, first, std::min(most_products, batch - first)), stream);
}

}  // namespace lockstep::cuda_kernels
