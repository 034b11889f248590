#include "arguments/recurrent.hpp"

#include "backend/cpu/families.hpp"
#include "backend/cpu/rows.hpp"

namespace lockstep::backend {
namespace {

void lstm_cell(const kernels::LstmCellArguments& a, StreamRef) {
  const auto dtype = require_rows("lstm", {&a.h, &a.gates});
  run_rows(host::loops().rows.lstm_cell[dtype], a, a.h);
}

void lstm_cell_backward(const kernels::LstmCellBackwardArguments& a, StreamRef) {
  const auto dtype = require_rows("lstm_backward", {&a.dgates, &a.gates});
  run_rows(host::loops().rows.lstm_cell_backward[dtype], a, a.c);
}

void gru_cell(const kernels::GruCellArguments& a, StreamRef) {
  const auto dtype = require_rows("gru", {&a.h, &a.gates, &a.candidate, &a.recurrent, &a.h_before});
  run_rows(host::loops().rows.gru_cell[dtype], a, a.h);
}

void gru_cell_backward(const kernels::GruCellBackwardArguments& a, StreamRef) {
  const auto dtype = require_rows("gru_backward", {&a.dgates, &a.drecurrent, &a.dh_before, &a.gates,
                                                   &a.candidate, &a.h_before});
  run_rows(host::loops().rows.gru_cell_backward[dtype], a, a.h_before);
}

}  // namespace

kernels::RecurrentKernels cpu_recurrent() {
  return {.lstm_cell = lstm_cell,
          .lstm_cell_backward = lstm_cell_backward,
          .gru_cell = gru_cell,
          .gru_cell_backward = gru_cell_backward};
}

}  // namespace lockstep::backend
