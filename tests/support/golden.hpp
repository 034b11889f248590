#pragma once

#include <filesystem>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/shape.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// The reference results in tests/data/golden (see the README there).

namespace lockstep::testing {

/// Arguments of a golden case by PyTorch's keyword names.
class GoldenArgs {
 public:
  /// @param json the text of a JSON object.
  explicit GoldenArgs(std::string_view json);

  /// True if the case gives the argument, and not as null.
  bool has(std::string_view key) const;
  /// A number, or the fallback where the case has none. The same holds for the others.
  double number(std::string_view key, double fallback = 0) const;
  std::int64_t integer(std::string_view key, std::int64_t fallback = 0) const;
  bool flag(std::string_view key, bool fallback = false) const;
  std::string text(std::string_view key, std::string fallback = "") const;
  /// A list of texts; empty where the case has none.
  std::vector<std::string> texts(std::string_view key) const;
  /// A list of numbers; empty where the case has none.
  std::vector<double> numbers(std::string_view key) const;
  /// A list of integers; a single integer counts as a list of one.
  Dims dims(std::string_view key, Dims fallback = {}) const;
  /// All arguments as JSON, for messages.
  std::string json() const;

 private:
  struct Object;
  std::shared_ptr<const Object> object_;
};

/// One op with its inputs, and what PyTorch made of them.
struct GoldenCase {
  std::string name;
  /// PyTorch's functional name: "layer_norm".
  std::string op;
  GoldenArgs args;
  std::vector<Tensor> inputs, outputs, grad_outputs;
  /// One for each input; undefined where the input has no gradient.
  std::vector<Tensor> grads;
};

/// The source tree, of which tests read files: LOCKSTEP_SOURCE_DIR of the environment, else where
/// it lay when they were compiled.
std::filesystem::path source_dir();

/// LOCKSTEP_GOLDEN_DIR of the environment, else tests/data/golden of the source tree.
std::filesystem::path golden_dir();
/// tests/data/reference of the source tree (see the README there).
std::filesystem::path reference_dir();

/// A file of the golden directory, or of tests/data/reference.
/// @param file name without folder and suffix: "matmul".
std::filesystem::path golden_file(std::string_view file);

/// Real data for trying and testing: LOCKSTEP_DATA_DIR of the environment, else ../shared/data
/// beside the source tree. It need not exist; tests that use it then skip.
std::filesystem::path data_dir();

/// All cases of one file of the golden directory, or of tests/data/reference.
/// @param file name without folder and suffix: "matmul".
std::vector<GoldenCase> load_golden(std::string_view file);

/// The case of the given name. @throws InvalidArgument if there is none.
GoldenCase load_golden_case(std::string_view file, std::string_view name);

/// Tolerance of the golden README, relative to the largest magnitude: 1e-9 for f64, 1e-5 for f32,
/// 1e-2 for bf16 and f16, 0 for integers.
double golden_tolerance(DType dtype);

/// Values by the fill rule of the golden README, rounded to f32.
Tensor fill_rule(std::string_view name, const Shape& shape, DType dtype = DType::f32);

/// Fails the running test unless shapes agree and every |actual - expected| is at most `tolerance`
/// times the largest |expected|. dtypes may differ.
void expect_close(const Tensor& actual, const Tensor& expected, double tolerance,
                  std::string_view what = "",
                  std::source_location where = std::source_location::current());

/// The same with the golden tolerance of the actual tensor's dtype.
void expect_close(const Tensor& actual, const Tensor& expected, std::string_view what = "",
                  std::source_location where = std::source_location::current());

}  // namespace lockstep::testing
