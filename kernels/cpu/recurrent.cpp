#include "arguments/recurrent.hpp"

#include "cpu/rows.hpp"

namespace lockstep::cpu_kernels {
void recurrent::lstm_cell(const kernels::LstmCellArguments& a, StreamRef) {
  const auto dtype = require_rows("lstm", {&a.h, &a.gates});
  run_rows(loops().rows.lstm_cell[dtype], a, a.h);
}

void recurrent::lstm_cell_backward(const kernels::LstmCellBackwardArguments& a, StreamRef) {
  const auto dtype = require_rows("lstm_backward", {&a.dgates, &a.gates});
  run_rows(loops().rows.lstm_cell_backward[dtype], a, a.c);
}

void recurrent::gru_cell(const kernels::GruCellArguments& a, StreamRef) {
  const auto dtype = require_rows("gru", {&a.h, &a.gates, &a.candidate, &a.recurrent, &a.h_before});
  run_rows(loops().rows.gru_cell[dtype], a, a.h);
}

void recurrent::gru_cell_backward(const kernels::GruCellBackwardArguments& a, StreamRef) {
  const auto dtype = require_rows("gru_backward", {&a.dgates, &a.drecurrent, &a.dh_before, &a.gates,
                                                   &a.candidate, &a.h_before});
  run_rows(loops().rows.gru_cell_backward[dtype], a, a.h_before);
}

}  // namespace lockstep::cpu_kernels
