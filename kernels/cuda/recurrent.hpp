#pragma once

#include "arguments/recurrent.hpp"

/// @file
/// The elementwise part of one step of recurrent layers.

namespace lockstep::cuda_kernels {

void lstm_cell(const kernels::LstmCellArguments& arguments, StreamRef stream);
void lstm_cell_backward(const kernels::LstmCellBackwardArguments& arguments, StreamRef stream);
void gru_cell(const kernels::GruCellArguments& arguments, StreamRef stream);
void gru_cell_backward(const kernels::GruCellBackwardArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
