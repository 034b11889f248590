#pragma once

#include "cublaslt/problem.hpp"

namespace simgpu::cublaslt {

/// The memory of one product.
struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  void* bias = nullptr;  ///< read, or written by the epilogues of bias gradients
  void* aux = nullptr;
};

/// The factors of a product; f32 products use them as floats.
struct Factors {
  double alpha = 1.0;
  double beta = 0.0;
};

/// Does the product: sums in f32 (f64 where wide), the epilogue on unrounded values, each output
/// rounded once. C is not read where beta is 0, A and B not where alpha is 0.
void compute(const Problem& problem, const Operands& operands, const Factors& factors);

}  // namespace simgpu::cublaslt
