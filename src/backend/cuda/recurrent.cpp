#include "cuda/recurrent.hpp"

#include "backend/cuda/families.hpp"

namespace lockstep::backend {

kernels::RecurrentKernels cuda_families::recurrent() {
  return {.lstm_cell = cuda_kernels::lstm_cell,
          .lstm_cell_backward = cuda_kernels::lstm_cell_backward,
          .gru_cell = cuda_kernels::gru_cell,
          .gru_cell_backward = cuda_kernels::gru_cell_backward};
}

}  // namespace lockstep::backend
