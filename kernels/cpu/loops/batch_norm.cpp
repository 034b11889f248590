#include "functional/batch_norm.hpp"

#include "cpu/loops/fill.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

using functional::Moments;
using functional::NormSums;

/// A vector of one value a column, in the accumulation type.
template <class T>
const AccumulateType<T>* vector(const void* values) {
  return static_cast<const AccumulateType<T>*>(values);
}

/// The rows of an array from `row` on.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;

  Rows(char* array, std::int64_t row_stride, std::int64_t row)
      : data(reinterpret_cast<T*>(array) + row * row_stride), stride(row_stride) {}
  LOCKSTEP_ALWAYS_INLINE AccumulateType<T> operator()(int row, std::int64_t c) const {
    return static_cast<AccumulateType<T>>(data[row * stride + c]);
  }
  LOCKSTEP_ALWAYS_INLINE void set(int row, std::int64_t c, AccumulateType<T> value) const {
    data[row * stride + c] = T(value);
  }
};

/// A number of rows as a type.
template <int count>
using RowCount = std::integral_constant<int, count>;

/// Calls `visit(row, RowCount)` for groups of four rows and then for single ones: what columns have
/// in common is read once for four.
template <class Visit>
LOCKSTEP_ALWAYS_INLINE void for_each_rows(std::int64_t rows, Visit&& visit) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) visit(row, RowCount<4>{});
  for (; row < rows; ++row) visit(row, RowCount<1>{});
}

/// Sums of as many columns as fit the stack.
constexpr std::int64_t most_columns = 1024;
template <class A>
struct ColumnSums {
  A sum[most_columns];
  explicit ColumnSums(std::int64_t columns) {
    for (std::int64_t c = 0; c < columns; ++c) sum[c] = A(0);
  }
};

/// Calls `visit(part of the block, its first column)` for parts of at most so many columns.
template <class T, class Visit>
void for_each_part(const ChannelBlock& block, Visit&& visit) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t c = 0; c < block.columns; c += most_columns) {
    ChannelBlock part = block;
    part.columns = block.columns - c < most_columns ? block.columns - c : most_columns;
    part.x += c * bytes;
    for (char** data : {&part.dy, &part.out, &part.side})
      if (*data) *data += c * bytes;
    visit(part, c);
  }
}

/// The sums are of deviations from the block's own mean, found in a first pass over what is in the
/// cache after it: as exact as sums in double.
template <class T>
void moments_of_part(const ChannelBlock& block, double* mean, double* squares, double count) {
  using A = AccumulateType<T>;
  const auto rows = static_cast<double>(block.rows);
  ColumnSums<A> centres(block.columns), sums(block.columns), square_sums(block.columns);
  for_each_rows(block.rows, [&](std::int64_t row, auto group) {
    const Rows<T> x(block.x, block.x_stride, row);
#pragma GCC ivdep
    for (std::int64_t c = 0; c < block.columns; ++c) {
      A sum = x(0, c);
      for (int k = 1; k < group.value; ++k) sum += x(k, c);
      centres.sum[c] += sum;
    }
  });
  for (std::int64_t c = 0; c < block.columns; ++c) centres.sum[c] /= static_cast<A>(rows);
  for_each_rows(block.rows, [&](std::int64_t row, auto group) {
    const Rows<T> x(block.x, block.x_stride, row);
#pragma GCC ivdep
    for (std::int64_t c = 0; c < block.columns; ++c) {
      const A centre = centres.sum[c];
      A sum = 0, square_sum = 0;
      for (int k = 0; k < group.value; ++k) {
        const A deviation = x(k, c) - centre;
        sum += deviation;
        square_sum += deviation * deviation;
      }
      sums.sum[c] += sum;
      square_sums.sum[c] += square_sum;
    }
  });
  for (std::int64_t c = 0; c < block.columns; ++c) {
    const double off = static_cast<double>(sums.sum[c]) / rows;
    const double square_sum = static_cast<double>(square_sums.sum[c]);
    const Moments<double> all = Moments<double>{count, mean[c], squares[c]} +
                                Moments<double>{rows, static_cast<double>(centres.sum[c]) + off,
                                                square_sum - off * off * rows};
    mean[c] = all.mean;
    squares[c] = all.squares;
  }
}

template <class T>
void moments(const ChannelBlock& block, double* mean, double* squares, double count) {
  for_each_part<T>(block, [&](const ChannelBlock& part, std::int64_t c) {
    moments_of_part<T>(part, mean + c, squares + c, count);
  });
}

template <class T, bool adds, bool relu>
void normalise_as(const ChannelBlock& block, const ChannelVectors& vectors) {
  using A = AccumulateType<T>;
  const auto* mean = vector<T>(vectors.mean);
  const auto* scale = vector<T>(vectors.scale);
  const auto* bias = vector<T>(vectors.bias);
  for_each_rows(block.rows, [&](std::int64_t row, auto group) {
    const Rows<T> x(block.x, block.x_stride, row), out(block.out, block.out_stride, row),
        residual(block.side, block.side_stride, row);
#pragma GCC ivdep
    for (std::int64_t c = 0; c < block.columns; ++c)
      for (int k = 0; k < group.value; ++k) {
        A z = functional::batch_norm(x(k, c), mean[c], scale[c], bias[c]);
        if constexpr (adds) z += residual(k, c);
        if constexpr (relu) z = functional::batch_norm_relu(z);
        out.set(k, c, z);
      }
  });
}

template <class T>
void normalise(const ChannelBlock& block, const ChannelVectors& vectors, bool relu) {
  if (block.side)
    return relu ? normalise_as<T, true, true>(block, vectors)
                : normalise_as<T, true, false>(block, vectors);
  return relu ? normalise_as<T, false, true>(block, vectors)
              : normalise_as<T, false, false>(block, vectors);
}

template <class T, bool relu>
void gradient_sums_of_part(const ChannelBlock& block, const AccumulateType<T>* mean,
                           const AccumulateType<T>* rstd, double* dy_sum, double* product_sum) {
  using A = AccumulateType<T>;
  ColumnSums<A> plain_sums(block.columns), product_sums(block.columns);
  for_each_rows(block.rows, [&](std::int64_t row, auto group) {
    const Rows<T> x(block.x, block.x_stride, row), dy(block.dy, block.dy_stride, row),
        out(block.out, block.out_stride, row), y(block.side, block.side_stride, row);
#pragma GCC ivdep
    for (std::int64_t c = 0; c < block.columns; ++c) {
      NormSums<A> sums{0, 0};
      for (int k = 0; k < group.value; ++k) {
        A dz = dy(k, c);
        if constexpr (relu) {
          dz = functional::batch_norm_relu_gradient(dz, y(k, c));
          out.set(k, c, dz);
        }
        sums = sums + functional::batch_norm_terms<A>(dz, x(k, c), mean[c]);
      }
      plain_sums.sum[c] += sums.plain;
      product_sums.sum[c] += sums.product;
    }
  });
  for (std::int64_t c = 0; c < block.columns; ++c) {
    dy_sum[c] += static_cast<double>(plain_sums.sum[c]);
    product_sum[c] += static_cast<double>(product_sums.sum[c] * rstd[c]);
  }
}

template <class T>
void gradient_sums(const ChannelBlock& block, const ChannelVectors& vectors, double* dy_sum,
                   double* product_sum) {
  for_each_part<T>(block, [&](const ChannelBlock& part, std::int64_t c) {
    const auto sum = part.side ? gradient_sums_of_part<T, true> : gradient_sums_of_part<T, false>;
    sum(part, vector<T>(vectors.mean) + c, vector<T>(vectors.rstd) + c, dy_sum + c,
        product_sum + c);
  });
}

template <class T>
void input_gradient(const ChannelBlock& block, const ChannelVectors& vectors) {
  using A = AccumulateType<T>;
  const auto* mean = vector<T>(vectors.mean);
  const auto* rstd = vector<T>(vectors.rstd);
  const auto* weight = vector<T>(vectors.weight);
  const auto* dy_sum = vector<T>(vectors.dy_sum);
  const auto* product_sum = vector<T>(vectors.product_sum);
  const A inverse_count = static_cast<A>(vectors.inverse_count);
  for_each_rows(block.rows, [&](std::int64_t row, auto group) {
    const Rows<T> x(block.x, block.x_stride, row), dy(block.dy, block.dy_stride, row),
        out(block.out, block.out_stride, row);
#pragma GCC ivdep
    for (std::int64_t c = 0; c < block.columns; ++c) {
      const auto gradient = functional::BatchNormGradient<A>::of(
          {mean[c], rstd[c]}, weight[c], {dy_sum[c], product_sum[c]}, inverse_count);
      for (int k = 0; k < group.value; ++k) out.set(k, c, gradient(dy(k, c), x(k, c)));
    }
  });
}

template <class T>
void add_dtype(Loops& loops) {
  loops.channels[static_cast<std::size_t>(dtype_of<T>)] = {.moments = moments<T>,
                                                           .normalise = normalise<T>,
                                                           .gradient_sums = gradient_sums<T>,
                                                           .input_gradient = input_gradient<T>};
}

}  // namespace

void fill_batch_norm(Loops& loops) {
  add_dtype<double>(loops);
  add_dtype<float>(loops);
  add_dtype<BFloat16>(loops);
  add_dtype<Half>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
