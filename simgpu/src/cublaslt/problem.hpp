#pragma once

#include <cstddef>
#include <cstdint>

#include "cublaslt/descriptors.hpp"

namespace simgpu::cublaslt {

/// A matrix of a product by its strides in elements; transposition and memory order are resolved.
struct Matrix {
  cudaDataType type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_stride = 1;     ///< from one row to the next
  std::int64_t column_stride = 0;  ///< from one column to the next
  std::int64_t batch_stride = 0;
};

/// One product, d [rows x columns] = epilogue(alpha a [rows x depth] b [depth x columns] + beta c).
struct Problem {
  Matrix a, b, c, d, aux;
  std::int64_t rows = 0, columns = 0, depth = 0, batch = 1;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  bool wide = false;  ///< sums, alpha and beta are f64 rather than f32
  bool tf32 = false;  ///< A and B are rounded to TF32
  std::int64_t bias_batch_stride = 0;

  bool has(std::uint32_t bits) const { return (epilogue & bits) == bits; }
  bool is_gelu() const { return has(CUBLASLT_EPILOGUE_GELU); }
  bool is_dgelu() const { return has(CUBLASLT_EPILOGUE_DGELU); }
  bool reads_bias() const { return has(CUBLASLT_EPILOGUE_BIAS); }
  bool reads_aux() const { return is_dgelu(); }
  bool writes_aux() const { return has(CUBLASLT_EPILOGUE_GELU_AUX); }
  bool writes_bias() const { return bias_gradient_length() != 0 && !reads_bias(); }
  /// Elements of the bias gradient; 0 where there is none.
  std::int64_t bias_gradient_length() const;
};

/// The status of a call, and what a person would want to know about it.
struct Verdict {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const char* reason = "";

  explicit operator bool() const { return status == CUBLAS_STATUS_SUCCESS; }
};

/// The four layouts of a call; `c` may be null and is then `d`.
struct Layouts {
  const MatrixLayout *a, *b, *c, *d;
};

/// Checks descriptors against cuBLASLt's documented rules (its guide, "cublasLtMatmul()" and the
/// attributes' descriptions) and fills in the problem.
Verdict examine(const MatmulDescription* description, const Layouts& layouts, Problem& problem);

/// Bytes of an element; 0 for types that the simulated GPU does not multiply.
std::size_t size_of(cudaDataType type);

/// Largest power of two, up to 256, that divides the address; 256 for null.
std::uint32_t alignment_of(const void* pointer);

/// Remembers why a call of this thread was refused, and returns its status.
cublasStatus_t refuse(const Verdict& verdict);
/// Why cuBLASLt last refused a call of this thread; empty if it never did. A status alone says
/// little.
const char* last_refusal();

}  // namespace simgpu::cublaslt
