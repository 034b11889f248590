#include "cublaslt/product.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cublaslt/tile_kernel.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/half.hpp"

namespace simgpu::cublaslt {
namespace {

constexpr std::int64_t block_rows = 128;
constexpr std::int64_t block_columns = 96;
constexpr std::int64_t block_depth = 256;

template <class Function>
void with_type(cudaDataType type, Function&& function) {
  switch (type) {
    case CUDA_R_64F: return function(std::type_identity<double>{});
    case CUDA_R_16F: return function(std::type_identity<lockstep::Half>{});
    case CUDA_R_16BF: return function(std::type_identity<lockstep::BFloat16>{});
    default: return function(std::type_identity<float>{});
  }
}

template <class T, class Sum>
Sum widen(T value) {
  if constexpr (std::is_same_v<T, double>)
    return static_cast<Sum>(value);
  else
    return static_cast<Sum>(static_cast<float>(value));
}

/// Rounds to TF32, which has 10 bits behind the point: to nearest, ties away from zero, as the PTX
/// instruction cvt.rna.tf32 does.
template <class Sum>
void round_to_tf32(std::vector<Sum>& values) {
  for (Sum& value : values) {
    if (!std::isfinite(value)) continue;
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    value = std::bit_cast<float>((bits + 0x1000U) & ~0x1FFFU);
  }
}

/// A one-dimensional run of elements of any type, read and written as Sum.
template <class Sum>
void load(Sum* to, const void* data, cudaDataType type, std::int64_t at, std::int64_t stride,
          std::int64_t count) {
  with_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(data) + at;
    for (std::int64_t i = 0; i < count; ++i) to[i] = widen<T, Sum>(from[i * stride]);
  });
}

template <class Sum>
void store(const Sum* from, void* data, cudaDataType type, std::int64_t at, std::int64_t stride,
           std::int64_t count) {
  with_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = static_cast<T*>(data) + at;
    using Rounded = std::conditional_t<std::is_same_v<T, double>, double, float>;
    for (std::int64_t i = 0; i < count; ++i) to[i * stride] = T(static_cast<Rounded>(from[i]));
  });
}

/// GELU by its tanh approximation (Hendrycks and Gimpel 2016), as cuBLASLt has it.
struct Gelu {
  static constexpr float slope = 0.7978845608F, cubic = 0.044715F;
  static float value(float x) {
    return 0.5F * x * (1.0F + std::tanh(slope * (x + cubic * x * x * x)));
  }
  static float derivative(float x) {
    const float t = std::tanh(slope * (x + cubic * x * x * x));
    return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * slope * (1.0F + 3.0F * cubic * x * x);
  }
};

/// A block of the output: rows [row, row + rows) and columns alike, of one batch entry.
struct Block {
  std::int64_t batch, row, column, rows, columns;
};

/// The product's work on one batch entry after the other, with the memory that it needs.
template <class Sum>
class Worker {
 public:
  Worker(const Problem& problem, const Operands& operands, const Factors& factors)
      : problem_(problem),
        operands_(operands),
        alpha_(static_cast<Sum>(factors.alpha)),
        beta_(static_cast<Sum>(factors.beta)),
        panels_a_(block_rows * block_depth),
        panels_b_(block_columns * block_depth),
        sums_(block_rows * block_columns),
        spare_(block_rows) {}

  void run() {
    for (std::int64_t n = 0; n < problem_.batch; ++n) {
      if (problem_.writes_bias()) start_bias_gradient(n);
      for (std::int64_t j = 0; j < problem_.columns; j += block_columns)
        for (std::int64_t i = 0; i < problem_.rows; i += block_rows)
          run_block({n, i, j, std::min(block_rows, problem_.rows - i),
                     std::min(block_columns, problem_.columns - j)});
      if (problem_.writes_bias())
        store(gradient_.data(), operands_.bias, problem_.d.type, n * problem_.bias_batch_stride, 1,
              problem_.bias_gradient_length());
    }
  }

 private:
  static constexpr std::int64_t panel_rows = tile_rows<Sum>;

  static std::int64_t at(const Matrix& matrix, std::int64_t batch, std::int64_t row,
                         std::int64_t column) {
    return batch * matrix.batch_stride + row * matrix.row_stride + column * matrix.column_stride;
  }

  /// Panels of `width` elements a step of the depth, short ones filled up with zeros.
  static void pack(Sum* to, const void* data, cudaDataType type, std::int64_t first,
                   std::int64_t stride, std::int64_t depth_stride, std::int64_t count,
                   std::int64_t depth, std::int64_t width) {
    with_type(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* from = static_cast<const T*>(data) + first;
      for (std::int64_t i = 0; i < count; i += width, to += width * depth) {
        const std::int64_t filled = std::min(width, count - i);
        if (filled < width) std::fill(to, to + width * depth, Sum(0));
        // The loop over the smaller stride inside: neighbours in memory are read together.
        if (stride <= depth_stride)
          for (std::int64_t p = 0; p < depth; ++p)
            for (std::int64_t k = 0; k < filled; ++k)
              to[p * width + k] = widen<T, Sum>(from[(i + k) * stride + p * depth_stride]);
        else
          for (std::int64_t k = 0; k < filled; ++k)
            for (std::int64_t p = 0; p < depth; ++p)
              to[p * width + k] = widen<T, Sum>(from[(i + k) * stride + p * depth_stride]);
      }
    });
  }

  void run_block(const Block& block) {
    std::fill(sums_.begin(), sums_.end(), Sum(0));
    if (alpha_ != Sum(0))
      for (std::int64_t p = 0; p < problem_.depth; p += block_depth)
        multiply(block, p, std::min(block_depth, problem_.depth - p));
    for (std::int64_t j = 0; j < block.columns; ++j)
      finish(block, block.column + j, sums_.data() + j * block_rows);
  }

  void multiply(const Block& block, std::int64_t p, std::int64_t depth) {
    const Matrix &a = problem_.a, &b = problem_.b;
    pack(panels_a_.data(), operands_.a, a.type, at(a, block.batch, block.row, p), a.row_stride,
         a.column_stride, block.rows, depth, panel_rows);
    pack(panels_b_.data(), operands_.b, b.type, at(b, block.batch, p, block.column),
         b.column_stride, b.row_stride, block.columns, depth, tile_columns);
    if (problem_.tf32) {
      round_to_tf32(panels_a_);
      round_to_tf32(panels_b_);
    }
    for (std::int64_t j = 0; j < block.columns; j += tile_columns)
      for (std::int64_t i = 0; i < block.rows; i += panel_rows)
        multiply_tile(depth, panels_a_.data() + i * depth, panels_b_.data() + j * depth,
                      sums_.data() + j * block_rows + i, block_rows);
  }

  /// Scales one column of sums, applies the epilogue and stores it.
  void finish(const Block& block, std::int64_t column, Sum* values) {
    const std::int64_t count = block.rows;
    for (std::int64_t i = 0; i < count; ++i) values[i] *= alpha_;
    if (beta_ != Sum(0)) {
      load(spare_.data(), operands_.c, problem_.c.type,
           at(problem_.c, block.batch, block.row, column), problem_.c.row_stride, count);
      for (std::int64_t i = 0; i < count; ++i) values[i] += beta_ * spare_[index(i)];
    }
    if (problem_.reads_bias()) {
      load(spare_.data(), operands_.bias, problem_.d.type,
           block.batch * problem_.bias_batch_stride + block.row, 1, count);
      for (std::int64_t i = 0; i < count; ++i) values[i] += spare_[index(i)];
    }
    apply_function(block, column, values);
    store(values, operands_.d, problem_.d.type, at(problem_.d, block.batch, block.row, column),
          problem_.d.row_stride, count);
  }

  void apply_function(const Block& block, std::int64_t column, Sum* values) {
    const std::int64_t count = block.rows;
    const std::int64_t aux_at = at(problem_.aux, block.batch, block.row, column);
    if (problem_.writes_aux()) store(values, operands_.aux, problem_.aux.type, aux_at, 1, count);
    if (problem_.has(CUBLASLT_EPILOGUE_RELU))
      for (std::int64_t i = 0; i < count; ++i) values[i] = std::max(values[i], Sum(0));
    if (problem_.is_gelu())
      for (std::int64_t i = 0; i < count; ++i)
        values[i] = Gelu::value(static_cast<float>(values[i]));
    if (!problem_.is_dgelu()) return;
    load(spare_.data(), operands_.aux, problem_.aux.type, aux_at, 1, count);
    for (std::int64_t i = 0; i < count; ++i)
      values[i] *= Gelu::derivative(static_cast<float>(spare_[index(i)]));
    if (problem_.writes_bias())
      for (std::int64_t i = 0; i < count; ++i) gradient_[index(block.row + i)] += values[i];
  }

  /// The sums over A's or B's depth at once; the rest gathers while columns are finished.
  void start_bias_gradient(std::int64_t batch) {
    gradient_.assign(index(problem_.bias_gradient_length()), Sum(0));
    const bool of_a = problem_.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    if (!of_a && problem_.epilogue != CUBLASLT_EPILOGUE_BGRADB) return;
    std::vector<Sum> step(gradient_.size());
    for (std::int64_t p = 0; p < problem_.depth; ++p) {
      const Matrix& from = of_a ? problem_.a : problem_.b;
      load(step.data(), of_a ? operands_.a : operands_.b, from.type,
           of_a ? at(from, batch, 0, p) : at(from, batch, p, 0),
           of_a ? from.row_stride : from.column_stride, problem_.bias_gradient_length());
      for (std::size_t i = 0; i < step.size(); ++i) gradient_[i] += step[i];
    }
  }

  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  const Problem& problem_;
  const Operands& operands_;
  Sum alpha_, beta_;
  std::vector<Sum> panels_a_, panels_b_, sums_, spare_, gradient_;
};

}  // namespace

void compute(const Problem& problem, const Operands& operands, const Factors& factors) {
  if (problem.wide)
    Worker<double>(problem, operands, factors).run();
  else
    Worker<float>(problem, operands, factors).run();
}

}  // namespace simgpu::cublaslt
