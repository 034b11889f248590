#include "cublaslt/algorithm.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace simgpu::cublaslt {
namespace {

/// Vector loads of 16 bytes are what kernels like; fewer where the operands do not allow them.
std::uint16_t vector_alignment(std::uint32_t promised) {
  return static_cast<std::uint16_t>(std::min<std::uint32_t>(promised, 16));
}

/// A small output with a deep sum is split, as on real devices, to occupy all multiprocessors.
bool worth_splitting(const Problem& problem) {
  const std::int64_t tiles =
      (problem.rows + 127) / 128 * ((problem.columns + 127) / 128) * problem.batch;
  return tiles <= 32 && problem.depth >= 1024;
}

}  // namespace

bool choose(const Problem& problem, const Alignments& alignments, std::uint64_t max_workspace,
            int rank, Algorithm& algorithm) {
  const std::size_t in = size_of(problem.a.type), out = size_of(problem.d.type);
  if (alignments.a < in || alignments.b < in || alignments.c < out || alignments.d < out)
    return false;
  algorithm = {};
  algorithm.align_a = vector_alignment(alignments.a);
  algorithm.align_b = vector_alignment(alignments.b);
  algorithm.align_c = vector_alignment(alignments.c);
  algorithm.align_d = vector_alignment(alignments.d);
  algorithm.align_bias = vector_alignment(alignments.bias);
  algorithm.align_aux = vector_alignment(alignments.aux);
  algorithm.type_in = static_cast<std::uint16_t>(problem.a.type);
  algorithm.type_out = static_cast<std::uint16_t>(problem.d.type);
  algorithm.epilogue = problem.epilogue;
  constexpr std::uint64_t parts = 4;
  const std::uint64_t bytes = parts * static_cast<std::uint64_t>(problem.rows) *
                              static_cast<std::uint64_t>(problem.columns * problem.batch) *
                              (problem.wide ? sizeof(double) : sizeof(float));
  const bool can_split = worth_splitting(problem) && bytes <= max_workspace;
  const int available = can_split ? 2 : 1;
  if (can_split && rank == 0) {
    algorithm.split = parts;
    algorithm.workspace = bytes;
  }
  return rank < available;
}

Verdict check(const Algorithm& algorithm, const Problem& problem, const Alignments& alignments) {
  if (algorithm.magic != Algorithm::valid)
    return {CUBLAS_STATUS_INVALID_VALUE, "the algorithm was never initialised"};
  if (algorithm.type_in != problem.a.type || algorithm.type_out != problem.d.type ||
      algorithm.epilogue != problem.epilogue)
    return {CUBLAS_STATUS_NOT_SUPPORTED,
            "the algorithm was chosen for other types or another epilogue"};
  const bool aligned = alignments.a >= algorithm.align_a && alignments.b >= algorithm.align_b &&
                       alignments.c >= algorithm.align_c && alignments.d >= algorithm.align_d;
  if (!aligned)
    return {CUBLAS_STATUS_NOT_SUPPORTED,
            "an operand is less aligned than the heuristics were told"};
  if ((problem.reads_aux() || problem.writes_aux()) && alignments.aux < algorithm.align_aux)
    return {CUBLAS_STATUS_NOT_SUPPORTED,
            "the auxiliary matrix is less aligned than the heuristics were told"};
  return {};
}

Algorithm unpack(const cublasLtMatmulAlgo_t& opaque) {
  std::array<std::byte, sizeof(Algorithm)> bytes;
  std::memcpy(bytes.data(), &opaque, bytes.size());
  return std::bit_cast<Algorithm>(bytes);
}

cublasLtMatmulAlgo_t pack(const Algorithm& algorithm) {
  cublasLtMatmulAlgo_t opaque{};
  std::memcpy(&opaque, &algorithm, sizeof algorithm);
  return opaque;
}

}  // namespace simgpu::cublaslt
