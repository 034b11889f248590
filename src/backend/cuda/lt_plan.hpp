#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <cublasLt.h>

#include "arguments/gemm.hpp"
#include "backend/cuda/lt_matrix.hpp"

namespace lockstep::cuda_kernels {

/// Everything that cuBLASLt's choice of a kernel depends on. In its column-major terms:
/// d = epilogue(op(a) op(b) + beta c).
struct LtProblem {
  LtMatrix a, b, c, d;  ///< c without beta, or where it is d: d
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  kernels::Epilogue epilogue = kernels::Epilogue::none;
  DType dtype = DType::f32;      ///< of a and b
  DType out_dtype = DType::f32;  ///< of d: the same, or f32
  int device = 0;
  std::int64_t batch = 1;
  std::int64_t aux_batch_stride = 0;
  bool keeps_aux = false;  ///< gelu_bias writes its input
  bool tf32 = false;       ///< f32 operands may be rounded for tensor cores
  /// Alignments in bytes of a, b, c, d and aux: up to 16, or 256.
  std::uint16_t align_a = 256, align_b = 256, align_c = 256, align_d = 256, align_aux = 256;

  friend bool operator==(const LtProblem&, const LtProblem&) = default;
};

/// True for epilogues that read or write a bias.
inline bool uses_bias(kernels::Epilogue epilogue) {
  return epilogue != kernels::Epilogue::none && epilogue != kernels::Epilogue::dgelu;
}

/// What changes from call to call of one problem.
struct LtOperands {
  const void* a;
  const void* b;
  const void* c;
  void* d;
  void* bias;
  void* aux;
  double beta;
};

/// The descriptors of one problem and the kernels that cuBLASLt's heuristics propose for it. Its
/// first is taken; under LOCKSTEP_TUNED_PRODUCTS the fastest (tuned_products.hpp), measured by the
/// first call that is not captured, which waits for the device.
class LtPlan {
 public:
  /// Asks the heuristics. @throws CudaError.
  explicit LtPlan(const LtProblem& problem);

  /// Queues the product, by the next kernel where one says that it cannot. @returns false, and
  /// queues nothing, if no kernel of cuBLASLt computes this problem. @throws CudaError.
  bool run(const LtOperands& operands, StreamRef stream);

 private:
  template <class T, cublasStatus_t (*destroy)(T)>
  struct Destroy {
    using pointer = T;
    void operator()(T handle) const { static_cast<void>(destroy(handle)); }
  };
  using Description =
      std::unique_ptr<void, Destroy<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
  using MatrixLayout =
      std::unique_ptr<void, Destroy<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;

  static MatrixLayout layout_of(const LtMatrix& matrix, DType dtype, std::int64_t batch);
  void describe();
  void choose();
  void tune(const LtOperands& operands, StreamRef stream);
  bool take_known(const std::string& name);
  double milliseconds(const cublasLtMatmulHeuristicResult_t& candidate, const LtOperands& operands,
                      StreamRef stream) const;
  cublasStatus_t multiply(const cublasLtMatmulHeuristicResult_t& candidate,
                          const LtOperands& operands, StreamRef stream) const;

  LtProblem problem_;
  Description description_;
  MatrixLayout a_, b_, c_, d_;
  std::vector<cublasLtMatmulHeuristicResult_t> candidates_;  ///< best first, by the heuristics
  std::size_t fastest_ = 0;
  bool tuned_ = false;
};

/// The calling thread's plan for a problem, made on first use.
LtPlan& lt_plan(const LtProblem& problem);

}  // namespace lockstep::cuda_kernels
