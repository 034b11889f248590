#include <algorithm>

#include "cublaslt/algorithm.hpp"
#include "engine/entry.hpp"

using namespace simgpu;
using namespace simgpu::cublaslt;

namespace {

/// The share of the device that a product fills: tiles over multiprocessors.
float waves(const Problem& problem, const Algorithm& algorithm) {
  constexpr float multiprocessors = 132;
  const auto tiles = (problem.rows + 127) / 128 * ((problem.columns + 127) / 128) * problem.batch;
  return static_cast<float>(tiles * algorithm.split) / multiprocessors;
}

}  // namespace

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int* returnAlgoCount) {
  static EntryPoint entry("cublasLtMatmulAlgoGetHeuristic");
  return entry.call([&]() -> cublasStatus_t {
    if (!lightHandle) return refuse({CUBLAS_STATUS_NOT_INITIALIZED, "no handle"});
    if (!returnAlgoCount || !heuristicResultsArray || requestedAlgoCount < 1 || !preference)
      return refuse({CUBLAS_STATUS_INVALID_VALUE, "no room for the results, or no preference"});
    *returnAlgoCount = 0;
    Problem problem;
    const MatmulDescription* description = of(operationDesc);
    const Verdict verdict =
        examine(description, {of(Adesc), of(Bdesc), of(Cdesc), of(Ddesc)}, problem);
    if (!verdict) return refuse(verdict);
    const Preference& wanted = *of(preference);
    // Bias and aux have no preference: their alignment is read off the pointers.
    const Alignments alignments{.a = wanted.align_a,
                                .b = wanted.align_b,
                                .c = wanted.align_c,
                                .d = wanted.align_d,
                                .bias = alignment_of(description->bias),
                                .aux = alignment_of(description->aux)};
    Algorithm algorithm;
    for (int rank = 0; rank < requestedAlgoCount; ++rank) {
      if (!choose(problem, alignments, wanted.max_workspace, rank, algorithm)) break;
      cublasLtMatmulHeuristicResult_t& result = heuristicResultsArray[rank];
      result = {};
      result.algo = pack(algorithm);
      result.workspaceSize = algorithm.workspace;
      result.state = CUBLAS_STATUS_SUCCESS;
      result.wavesCount = waves(problem, algorithm);
      *returnAlgoCount = rank + 1;
    }
    if (*returnAlgoCount > 0) return CUBLAS_STATUS_SUCCESS;
    return refuse({CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm takes operands so little aligned"});
  });
}
