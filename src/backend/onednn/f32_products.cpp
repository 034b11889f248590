#include "backend/onednn/f32_products.hpp"

#include <algorithm>
#include <array>

#include "arguments/elementwise.hpp"
#include "backend/onednn/library.hpp"
#include "cpu/scratch.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::backend {
namespace {

using kernels::Epilogue;
using kernels::GemmArguments;

// Elements of a block of a or b, and of the result; and the longest sum that one product makes.
constexpr std::int64_t operand_block = std::int64_t{1} << 22;
constexpr std::int64_t result_block = std::int64_t{1} << 19;
constexpr std::int64_t depth_block = std::int64_t{1} << 14;
constexpr std::int64_t least_side = 64;
// Multiply-adds of one product of a batch from which on all threads share it.
constexpr std::int64_t shared_product = std::int64_t{1} << 24;

/// The thread's working memory, one slot for each operand of a product.
float* memory(std::size_t slot, std::int64_t elements) {
  static thread_local std::array<cpu_kernels::Scratch, 4> slots;
  return slots[slot].get<float>(static_cast<std::size_t>(elements));
}

void copy(const ArrayView& out, const ArrayView& in) {
  cpu_kernels::elementwise::copy({.out = out, .in = in}, StreamRef{});
}

/// An f32 array of a matrix' shape and order in memory.
ArrayView f32_like(const ArrayView& matrix, std::size_t slot) {
  const std::int64_t rows = matrix.shape[1], columns = matrix.shape[2];
  ArrayView wide{memory(slot, matrix.numel()), DType::f32, matrix.shape, {}};
  const bool by_columns = matrix.strides[2] != 1 && matrix.strides[1] == 1;
  wide.strides =
      by_columns ? Strides{rows * columns, 1, rows} : Strides{rows * columns, columns, 1};
  return wide;
}

ArrayView widened(const ArrayView& matrix, std::size_t slot) {
  const ArrayView wide = f32_like(matrix, slot);
  copy(wide, matrix);
  return wide;
}

/// The extent of parts of at most `most` that are nearly equal.
std::int64_t even_parts(std::int64_t extent, std::int64_t most) {
  const std::int64_t parts = (extent + most - 1) / most;
  return (extent + parts - 1) / parts;
}

}  // namespace

ArrayView part(ArrayView view, int dim, std::int64_t first, std::int64_t count) {
  view.data = view.as<std::byte>() +
              first * view.strides[dim] * static_cast<std::int64_t>(size_of(view.dtype));
  view.shape[dim] = count;
  return view;
}

bool is_multiplied_in_f32(DType dtype) {
  return dtype == DType::f16 || (dtype == DType::bf16 && !dnn::has_bf16_products());
}

void multiply_in_f32(const GemmArguments& call, FunctionRef<void(const GemmArguments&)> multiply) {
  const std::int64_t batch = call.out.shape[0], rows = call.out.shape[1],
                     columns = call.out.shape[2], depth = call.a.shape[2];
  if (batch > 1) {
    const auto some = [&](std::int64_t begin, std::int64_t end) {
      GemmArguments one = call;
      for (std::int64_t i = begin; i < end; ++i) {
        one.out = part(call.out, 0, i, 1);
        one.a = part(call.a, 0, call.a.shape[0] == 1 ? 0 : i, 1);
        one.b = part(call.b, 0, call.b.shape[0] == 1 ? 0 : i, 1);
        multiply_in_f32(one, multiply);
      }
    };
    // A thread each, or all threads one after the other.
    if (rows * columns * depth > shared_product) return some(0, batch);
    return parallel_for(batch, 1, some);
  }
  const std::int64_t deep = even_parts(depth, depth_block);
  const std::int64_t wide = even_parts(
      columns, std::max(std::min(operand_block / deep, result_block / least_side), least_side));
  const std::int64_t high =
      even_parts(rows, std::max(std::min(operand_block / deep, result_block / wide), least_side));
  const bool is_deep = deep < depth;
  for (std::int64_t n = 0; n < columns; n += wide) {
    const std::int64_t width = std::min(wide, columns - n);
    const ArrayView b = part(call.b, 2, n, width);
    GemmArguments block{.beta = call.beta, .epilogue = call.epilogue};
    if (call.bias) {
      ArrayView bias = call.bias;
      bias = part(bias, 0, bias.shape[0] == 1 ? 0 : n, bias.shape[0] == 1 ? 1 : width);
      block.bias = {memory(3, bias.shape[0]), DType::f32, bias.shape, {1}};
      copy(block.bias, bias);
    }
    if (!is_deep) block.b = widened(b, 1);
    for (std::int64_t m = 0; m < rows; m += high) {
      const std::int64_t height = std::min(high, rows - m);
      const ArrayView out = part(part(call.out, 1, m, height), 2, n, width);
      const ArrayView a = part(call.a, 1, m, height);
      GemmArguments step = block;
      step.out = out.dtype == DType::f32 ? out : f32_like(out, 2);
      if (call.beta != 0 && out.dtype != DType::f32) copy(step.out, out);
      for (std::int64_t k = 0; k < depth; k += deep) {
        const std::int64_t length = std::min(deep, depth - k);
        step.a = widened(part(a, 2, k, length), 0);
        if (is_deep) step.b = widened(part(b, 1, k, length), 1);
        multiply(step);
        step.beta = 1;
        step.bias = {};
        step.epilogue = Epilogue::none;
      }
      if (out.dtype != DType::f32) copy(out, step.out);
    }
  }
}

}  // namespace lockstep::backend
