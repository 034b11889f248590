#include "backend/backend.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "planted/options.hpp"
#include "planted/programs.hpp"
#include "planted/switch.hpp"

/// @file
/// Products through a copy of LtPlan that describes them wrongly: see planted.cmake.

namespace planted {
namespace {

using namespace lockstep;

// A product of matrices whose rows are as long as they look.
Tensor product_of_packed_rows() {
  const Tensor a = ones({16, 20}, f32), b = ones({20, 12}, f32);
  name_memory(a.data_ptr(), a.nbytes(), "a, 20 columns");
  return matmul(a, b);
}

}  // namespace

// LtPlan rounds leading dimensions up to 8, as if all rows were padded.
void wrong_leading_dimension() {
  product_of_packed_rows();
  synchronize(current_stream(cuda(0)));
}

namespace {

ArrayView as_batch(const Tensor& matrix) { return matrix.unsqueeze(0).view(); }

/// A layer that keeps what its GELU saw.
struct Layer {
  Tensor x = ones({16, 16}, f32), weight = ones({16, 32}, f32), bias = zeros({32}, f32);
  Tensor pre_activation;

  Tensor forward() {
    const Tensor y = empty({16, 32}, f32);
    pre_activation = empty({16, 32}, f32);
    name_memory(pre_activation.data_ptr(), pre_activation.nbytes(), "pre-activation");
    gemm({.out = as_batch(y),
          .a = as_batch(x),
          .b = as_batch(weight),
          .epilogue = kernels::Epilogue::gelu_bias,
          .bias = bias.view(),
          .aux = as_batch(pre_activation)});
    return y;
  }

  // The gradient before the GELU, of a product that follows it.
  Tensor backward(const Tensor& dy, const Tensor& next_weight) const {
    const Tensor dx = empty({16, 32}, f32);
    gemm({.out = as_batch(dx),
          .a = as_batch(dy),
          .b = as_batch(next_weight),
          .epilogue = kernels::Epilogue::dgelu,
          .aux = as_batch(pre_activation)});
    return dx;
  }

  static void gemm(const kernels::GemmArguments& call) {
    backend::of(cuda(0)).gemm.multiply(call, current_stream(cuda(0)));
  }
};

}  // namespace

// LtPlan chooses the GELU that keeps nothing for the backward.
void wrong_epilogue() {
  Layer layer;
  layer.forward();
  layer.backward(ones({16, 8}, f32), ones({8, 32}, f32));
  synchronize(current_stream(cuda(0)));
}

namespace {

// The square of a matrix, in memory of its own or over the matrix.
void square(const Tensor& matrix, const Tensor& result) {
  Layer::gemm({.out = as_batch(result), .a = as_batch(matrix), .b = as_batch(matrix)});
}

}  // namespace

void product_over_operand() {
  const Tensor matrix = ones({16, 16}, f32), result = empty({16, 16}, f32);
  square(matrix, is_planted("product-over-operand") ? matrix : result);
  synchronize(current_stream(cuda(0)));
}

}  // namespace planted
