#pragma once

#include <cstdint>
#include <type_traits>

#include "cublaslt/problem.hpp"

namespace simgpu::cublaslt {

/// What the simulated heuristics put into a cublasLtMatmulAlgo_t: enough to tell whether a call is
/// one that the algorithm was chosen for.
struct Algorithm {
  static constexpr std::uint32_t valid = 0x4C534147;  // any unlikely number

  std::uint32_t magic = valid;
  std::uint32_t split = 1;      ///< parts that the depth is cut into; more than 1 takes workspace
  std::uint64_t workspace = 0;  ///< bytes
  /// Smallest alignments in bytes that the kernel can take.
  std::uint16_t align_a = 1, align_b = 1, align_c = 1, align_d = 1, align_bias = 1, align_aux = 1;
  std::uint16_t type_in = 0, type_out = 0;
  std::uint32_t epilogue = 0;
  std::uint32_t unused = 0;
};
// As of the real library: a program that keeps an algorithm knows it again by its bytes.
static_assert(std::has_unique_object_representations_v<Algorithm>);
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

/// Alignments in bytes that a caller promises or has.
struct Alignments {
  std::uint32_t a = 256, b = 256, c = 256, d = 256, bias = 256, aux = 256;
};

/// The algorithm for a problem; nothing with more alignment or workspace than given.
/// @param rank 0 for the best, 1 for the next.
/// @return false where there is none.
bool choose(const Problem& problem, const Alignments& alignments, std::uint64_t max_workspace,
            int rank, Algorithm& algorithm);

/// Whether an algorithm can run a problem on operands of these alignments.
Verdict check(const Algorithm& algorithm, const Problem& problem, const Alignments& alignments);

/// Out of and into the opaque form.
Algorithm unpack(const cublasLtMatmulAlgo_t& opaque);
cublasLtMatmulAlgo_t pack(const Algorithm& algorithm);

}  // namespace simgpu::cublaslt
