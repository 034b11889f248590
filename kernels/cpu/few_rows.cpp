#include "cpu/few_rows.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "cpu/loops.hpp"
#include "cpu/scratch.hpp"
#include "cpu/typed_row.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

using kernels::Epilogue;
using kernels::GemmArguments;

// Columns that one thread computes at a time: sums, or widened parts of b, stay in its caches.
constexpr std::int64_t column_block = 1024;
// Columns or rows of b that are brought into f32 at once.
constexpr std::int64_t widened_together = 4;
constexpr std::int64_t parallel_work = 65536;  // multiply-adds that are worth a second thread
// Elements of b below which there are faster ways.
constexpr std::int64_t least_work = std::int64_t{1} << 14;
constexpr std::int64_t least_run = 32;  // of them that lie next to each other

ArrayView transposed(ArrayView view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

bool is_taken(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

/// The call with the few rows in a; nothing where it is none of these products.
std::optional<GemmArguments> with_few_rows(const GemmArguments& call) {
  constexpr auto most = static_cast<std::int64_t>(FewRowsLoops::most_rows);
  const bool has_bias = call.epilogue == Epilogue::bias;
  if (!has_bias && call.epilogue != Epilogue::none) return std::nullopt;
  if (call.addend || call.beta != 0 || !is_taken(call.a.dtype) || !is_taken(call.out.dtype) ||
      call.b.dtype != call.a.dtype || (has_bias && !is_taken(call.bias.dtype)))
    return std::nullopt;
  GemmArguments few = call;
  if (call.out.shape[1] > most) {
    if (call.out.shape[2] > most || has_bias) return std::nullopt;
    few.out = transposed(call.out);
    few.a = transposed(call.b);
    few.b = transposed(call.a);
  }
  const ArrayView& b = few.b;
  const bool is_long = (b.strides[1] == 1 && b.shape[1] >= least_run) ||
                       (b.strides[2] == 1 && b.strides[1] != 1 && b.shape[2] >= least_run);
  return is_long && b.shape[1] * b.shape[2] >= least_work ? std::optional(few) : std::nullopt;
}

/// One product of a batch, with a in f32.
class Product {
 public:
  Product(const GemmArguments& call, std::int64_t batch, const float* a)
      : call_(call),
        a_(a),
        rows_(call.a.shape[1]),
        depth_(call.a.shape[2]),
        b_at_(batch * call.b.strides[0]),
        out_at_(batch * call.out.strides[0]),
        along_depth_(call.b.strides[1] == 1) {}

  void run(std::int64_t first, std::int64_t count) const {
    static thread_local Scratch scratch;
    const std::int64_t widened =
        call_.b.dtype == DType::f32 ? 0 : widened_together * (along_depth_ ? depth_ : count);
    float* const sums =
        scratch.get<float>(static_cast<std::size_t>((rows_ + 1) * column_block + widened));
    float* const bias = sums + rows_ * column_block;
    if (along_depth_)
      multiply_along_depth(sums, first, count, bias + column_block);
    else
      multiply_along_columns(sums, first, count, bias + column_block);
    if (call_.epilogue == Epilogue::bias) {
      load_row(bias, call_.bias, first * call_.bias.strides[0], call_.bias.strides[0], count);
      for (std::int64_t i = 0; i < rows_; ++i)
        for (std::int64_t j = 0; j < count; ++j) sums[i * column_block + j] += bias[j];
    }
    const auto& strides = call_.out.strides;
    for (std::int64_t i = 0; i < rows_; ++i)
      store_row(call_.out, out_at_ + i * strides[1] + first * strides[2], strides[2],
                sums + i * column_block, count);
  }

 private:
  FewRows operands(float* sums, std::int64_t from) const {
    return {.sums = sums,
            .sums_row = column_block,
            .a = a_ + from,
            .a_row = depth_,
            .b = nullptr,
            .b_stride = 0,
            .columns = 0,
            .depth = 0};
  }

  /// Brings some columns or rows of b, from an element on, into f32.
  void widen(float* to, std::int64_t at, std::int64_t stride, std::int64_t lines,
             std::int64_t length) const {
    for (std::int64_t k = 0; k < lines; ++k)
      load_row(to + k * length, call_.b, at + k * stride, 1, length);
  }

  void multiply_along_depth(float* sums, std::int64_t first, std::int64_t count,
                            float* widened) const {
    const auto loop = loops().few_rows.along_depth[rows_ - 1];
    const std::int64_t stride = call_.b.strides[2], begin = b_at_ + first * stride;
    FewRows o = operands(sums, 0);
    o.depth = depth_;
    if (call_.b.dtype == DType::f32) {
      o.b = call_.b.as<const float>() + begin;
      o.b_stride = stride;
      o.columns = count;
      return loop(o);
    }
    o.b = widened;
    o.b_stride = depth_;
    for (std::int64_t j = 0; j < count; j += widened_together, o.sums += widened_together) {
      o.columns = std::min(widened_together, count - j);
      widen(widened, begin + j * stride, stride, o.columns, depth_);
      loop(o);
    }
  }

  void multiply_along_columns(float* sums, std::int64_t first, std::int64_t count,
                              float* widened) const {
    const auto loop = loops().few_rows.along_columns[rows_ - 1];
    const std::int64_t stride = call_.b.strides[1], begin = b_at_ + first;
    for (std::int64_t i = 0; i < rows_; ++i) std::fill_n(sums + i * column_block, count, 0.0f);
    FewRows o = operands(sums, 0);
    o.columns = count;
    if (call_.b.dtype == DType::f32) {
      o.b = call_.b.as<const float>() + begin;
      o.b_stride = stride;
      o.depth = depth_;
      return loop(o);
    }
    for (std::int64_t p = 0; p < depth_; p += widened_together) {
      o = operands(sums, p);
      o.columns = count;
      o.b = widened;
      o.b_stride = count;
      o.depth = std::min(widened_together, depth_ - p);
      widen(widened, begin + p * stride, stride, o.depth, count);
      loop(o);
    }
  }

  const GemmArguments& call_;
  const float* a_;
  std::int64_t rows_, depth_, b_at_, out_at_;
  bool along_depth_;
};

}  // namespace

bool multiply_few_rows(const GemmArguments& given) {
  const auto few = with_few_rows(given);
  if (!few) return false;
  const GemmArguments& call = *few;
  const std::int64_t rows = call.a.shape[1], depth = call.a.shape[2];
  const std::int64_t columns = call.b.shape[2];
  // Products of a batch are the threads', columns where there is no batch.
  parallel_for(call.out.shape[0], 1, [&](std::int64_t first, std::int64_t last) {
    static thread_local Scratch scratch;
    float* const a = scratch.get<float>(static_cast<std::size_t>(rows * depth));
    for (std::int64_t batch = first; batch < last; ++batch) {
      for (std::int64_t i = 0; i < rows; ++i)
        load_row(a + i * depth, call.a, batch * call.a.strides[0] + i * call.a.strides[1],
                 call.a.strides[2], depth);
      const Product product(call, batch, a);
      const std::int64_t grain = parallel_work / (rows * depth) + 1;
      parallel_for(columns, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = begin; at < end; at += column_block)
          product.run(at, std::min(column_block, end - at));
      });
    }
  });
  return true;
}

}  // namespace lockstep::cpu_kernels
