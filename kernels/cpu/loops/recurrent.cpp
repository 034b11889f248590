#include "functional/recurrent.hpp"

#include "cpu/loops/fill.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

/// Rows [begin, end) of a step.
template <class Cell, class Arguments>
void run(const Arguments& arguments, std::int64_t begin, std::int64_t end) {
  const Cell cell(arguments);
  for (std::int64_t row = begin; row < end; ++row) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < cell.features; ++j) cell(row, j);
  }
}

template <class T>
void add_dtype(RowLoops& loops) {
  constexpr auto dtype = static_cast<std::size_t>(dtype_of<T>);
  loops.lstm_cell[dtype] = run<functional::LstmCell<T>>;
  loops.lstm_cell_backward[dtype] = run<functional::LstmCellBackward<T>>;
  loops.gru_cell[dtype] = run<functional::GruCell<T>>;
  loops.gru_cell_backward[dtype] = run<functional::GruCellBackward<T>>;
}

}  // namespace

void fill_recurrent(RowLoops& loops) {
  add_dtype<double>(loops);
  add_dtype<float>(loops);
  add_dtype<BFloat16>(loops);
  add_dtype<Half>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
