#include "arguments/recurrent.hpp"
#include "cuda/launch.hpp"
#include "functional/recurrent.hpp"

namespace lockstep::cuda_kernels {
namespace {

constexpr int threads = 256;

/// A thread takes one feature of one row.
template <class Cell>
__global__ void __launch_bounds__(threads) cell_kernel(Cell cell, std::int64_t count) {
  for (std::int64_t i = global_thread(); i < count; i += grid_threads())
    cell(i / cell.features, i % cell.features);
}

/// Runs the cell on all elements of arrays with the shape of `like`.
template <template <class> class Cell, class Arguments>
void run(const Arguments& arguments, DType dtype, const ArrayView& like, StreamRef stream) {
  const std::int64_t count = like.numel();
  if (count == 0) return;
  dispatch_floating(dtype, "recurrent cell", [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(count, threads), threads, 0, cell_kernel<Cell<T>>, Cell<T>(arguments),
           count);
  });
}

}  // namespace

void recurrent::lstm_cell(const kernels::LstmCellArguments& a, StreamRef stream) {
  run<functional::LstmCell>(a, a.h.dtype, a.h, stream);
}

void recurrent::lstm_cell_backward(const kernels::LstmCellBackwardArguments& a, StreamRef stream) {
  run<functional::LstmCellBackward>(a, a.gates.dtype, a.c, stream);
}

void recurrent::gru_cell(const kernels::GruCellArguments& a, StreamRef stream) {
  run<functional::GruCell>(a, a.h.dtype, a.h, stream);
}

void recurrent::gru_cell_backward(const kernels::GruCellBackwardArguments& a, StreamRef stream) {
  run<functional::GruCellBackward>(a, a.gates.dtype, a.h_before, stream);
}

}  // namespace lockstep::cuda_kernels
