#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

/// @file
/// One JSON object a step, for plots and comparisons.

namespace examples {

/// Appends lines of numbers to a file; does nothing without one.
class StepLog {
 public:
  /// Numbers and their names.
  using Fields = std::vector<std::pair<std::string, double>>;

  /// Writes nothing.
  StepLog() = default;
  /// Replaces the file, or goes on behind what it has; makes folders that it lies in.
  /// @throws lockstep::InvalidArgument if it cannot be written.
  explicit StepLog(const std::filesystem::path& path, bool goes_on = false);

  /// Writes one object; numbers keep all their digits, and what is not finite becomes null. Once
  /// that fails, a warning tells.
  void write(const Fields& fields);

 private:
  std::filesystem::path path_;
  std::ofstream out_;
  bool is_told_ = false;
};

}  // namespace examples
