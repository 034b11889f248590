#include "cpu/small_gemm.hpp"

#include <algorithm>
#include <utility>

#include "cpu/attention_kernels.hpp"
#include "cpu/gemm_kernels.hpp"
#include "cpu/gemm_pack.hpp"
#include "cpu/scratch.hpp"

namespace lockstep::cpu_kernels {
namespace {

using kernels::Epilogue;
using kernels::GemmArguments;

/// An operand; element (i, j) is at data[i * row + j * column].
struct Matrix {
  float* data;
  std::int64_t rows, columns, row, column;

  Matrix(const ArrayView& view, std::int64_t batch)
      : data(view.as<float>() + batch * view.strides[0]),
        rows(view.shape[1]),
        columns(view.shape[2]),
        row(view.strides[1]),
        column(view.strides[2]) {}
};

/// The columns of b and of the output that one pass over the rows computes: 1 or 2 vectors of them,
/// of which the last columns may be none of the product's.
struct Panel {
  std::int64_t first, columns, width;
};

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Working memory for one panel.
struct PanelMemory {
  float *b, *rows_of_b, *out, *bias;

  PanelMemory(std::int64_t rows, std::int64_t width, std::int64_t depth) {
    static thread_local Scratch scratch;
    b = scratch.get<float>(static_cast<std::size_t>(width * (2 * depth + rows + 1)));
    rows_of_b = b + width * depth;
    out = rows_of_b + width * depth;
    bias = out + width * rows;
  }
};

/// A panel of b as [depth, width], where depth is contiguous in memory.
void transpose_panel(const Matrix& b, const Panel& panel, const PanelMemory& memory) {
  const std::int64_t depth = rounded_up(b.rows, strided_kernels().lanes);
  const float* from = b.data + panel.first * b.column;
  if (panel.columns < panel.width || depth != b.rows || b.column != b.rows) {
    std::fill_n(memory.rows_of_b, panel.width * depth, 0.0f);
    for (std::int64_t j = 0; j < panel.columns; ++j)
      std::copy_n(from + j * b.column, b.rows, memory.rows_of_b + j * depth);
    from = memory.rows_of_b;
  }
  attention_loops().transpose(memory.b, from, panel.width, depth);
}

bool lies_in_place(const Matrix& b, const Panel& panel) {
  return b.column == 1 && panel.columns == panel.width;
}

/// A panel of b with contiguous rows, and the distance of its rows.
std::pair<const float*, std::int64_t> panel_of_b(const Matrix& b, const Panel& panel,
                                                 const PanelMemory& memory) {
  if (lies_in_place(b, panel)) return {b.data + panel.first, b.row};
  if (b.row == 1 && b.rows >= strided_kernels().lanes)
    transpose_panel(b, panel, memory);
  else
    pack_panels<float, float>(memory.b, {b.data + panel.first * b.column, b.column, b.row},
                              panel.columns, b.rows, panel.width);
  return {memory.b, panel.width};
}

/// What is added to the product: `data` is null for nothing.
struct Addend {
  const float* data;
  std::int64_t row;
};

/// beta * out + bias, which is written to `to` where it does not lie in memory.
Addend addend_of(const GemmArguments& call, const Panel& panel, const Matrix& out,
                 const PanelMemory& memory, float* to, std::int64_t to_row) {
  const bool biased = call.epilogue == Epilogue::bias;
  const auto beta = static_cast<float>(call.beta);
  std::fill_n(memory.bias, panel.width, 0.0f);
  if (biased)
    for (std::int64_t j = 0; j < panel.columns; ++j)
      memory.bias[j] = call.bias.as<const float>()[(panel.first + j) * call.bias.strides[0]];
  if (beta == 0) return {biased ? memory.bias : nullptr, 0};
  const float* before = out.data + panel.first;
  if (!biased && beta == 1 && to == before) return {to, to_row};
  for (std::int64_t i = 0; i < out.rows; ++i, before += out.row) {
    float* const row = to + i * to_row;
    for (std::int64_t j = 0; j < panel.columns; ++j) row[j] = beta * before[j] + memory.bias[j];
    std::fill(row + panel.columns, row + panel.width, 0.0f);
  }
  return {to, to_row};
}

void multiply_panel(const GemmArguments& call, std::int64_t batch, const Panel& panel,
                    const PanelMemory& memory) {
  const Matrix a(call.a, batch), out(call.out, batch);
  const auto [b, b_row] = panel_of_b(Matrix(call.b, batch), panel, memory);
  const bool direct = panel.columns == panel.width;
  float* const to = direct ? out.data + panel.first : memory.out;
  const std::int64_t to_row = direct ? out.row : panel.width;
  const Addend addend = addend_of(call, panel, out, memory, to, to_row);
  const StridedKernels& kernels = strided_kernels();
  const auto& tiles =
      (addend.data ? kernels.sum : kernels.product)[panel.width / kernels.lanes - 1];
  const std::int64_t bands = (a.rows + kernels.rows - 1) / kernels.rows;
  for (std::int64_t band = 0; band < bands; ++band) {
    const std::int64_t i = a.rows * band / bands, rows = a.rows * (band + 1) / bands - i;
    tiles[rows - 1]({a.columns, a.data + i * a.row, a.row, a.column, b, b_row, to + i * to_row,
                     to_row, addend.data + i * addend.row, addend.row});
  }
  if (direct) return;
  for (std::int64_t i = 0; i < out.rows; ++i)
    std::copy_n(to + i * to_row, panel.columns, out.data + i * out.row + panel.first);
}

/// Whether the tiles are the fastest way. A b that has to be packed pays with the rows that use it,
/// and columns have to fill half a vector.
bool suits(const GemmArguments& call) {
  if (call.epilogue != Epilogue::none && call.epilogue != Epilogue::bias) return false;
  if (call.addend) return false;
  // Up to so many multiply-adds a second thread, or a primitive, costs more than it brings; up to
  // the fewer ones every other way takes longer to begin.
  constexpr std::int64_t most = std::int64_t{1} << 18, tiny = 512;
  const std::int64_t rows = call.out.shape[1], columns = call.out.shape[2];
  const std::int64_t depth = call.a.shape[2], work = call.out.numel() * depth;
  if (depth == 0 || work > most || (columns > 1 && call.out.strides[2] != 1)) return false;
  const std::int64_t lanes = strided_kernels().lanes;
  const bool in_place = call.b.strides[2] == 1 && columns % lanes == 0;
  return work <= tiny || (rows >= (in_place ? 4 : 16) && 2 * columns >= lanes && depth >= 4);
}

}  // namespace

bool multiply_small(const GemmArguments& call) {
  for (const ArrayView* view : {&call.out, &call.a, &call.b, &call.bias})
    if (*view && view->dtype != DType::f32) return false;
  if (!suits(call)) return false;
  const std::int64_t lanes = strided_kernels().lanes;
  const std::int64_t columns = call.out.shape[2];
  const PanelMemory memory(call.out.shape[1], 2 * lanes, rounded_up(call.a.shape[2], lanes));
  for (std::int64_t batch = 0; batch < call.out.shape[0]; ++batch)
    for (std::int64_t first = 0; first < columns; first += 2 * lanes) {
      const std::int64_t count = std::min(columns - first, 2 * lanes);
      multiply_panel(call, batch, {first, count, rounded_up(count, lanes)}, memory);
    }
  return true;
}

}  // namespace lockstep::cpu_kernels
