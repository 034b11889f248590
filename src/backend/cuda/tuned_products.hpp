#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include <cublasLt.h>

namespace lockstep::cuda_kernels {

/// cuBLASLt's fastest kernels by problem, in a file that outlives the program: the variable
/// LOCKSTEP_TUNED_PRODUCTS names it. A line a problem: device and version of cuBLASLt, the problem,
/// the kernel in hexadecimal digits, its microseconds and those of the heuristics' first; the last
/// line of a problem counts. Programs and ranks may share the file, on NFS too: lines are written
/// whole, one at a time, and what others have added is known from the next start on. Any thread may
/// call.
class TunedProducts {
 public:
  /// Those of the variable's file, read by the first call; null where it is not set.
  static TunedProducts* of_process();

  /// Reads the file where there is one, and makes it where there is none. Lines that say something
  /// else are left out with a warning; what is no file, or cannot be written, is a warning.
  explicit TunedProducts(std::string file);

  std::optional<cublasLtMatmulAlgo_t> find(const std::string& problem) const;
  /// Adds a line, in the stead of one of the problem; a failed write is a warning, and the last.
  void keep(const std::string& problem, const cublasLtMatmulAlgo_t& algorithm, double microseconds,
            double microseconds_of_first);

 private:
  bool read(const std::string& line);

  std::string file_;
  bool can_write_ = true;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, cublasLtMatmulAlgo_t> known_;
};

}  // namespace lockstep::cuda_kernels
