#pragma once

#include <cstdint>
#include <string>

#include "lockstep/autograd/ops/spatial.hpp"
#include "lockstep/nn/module.hpp"

/// @file
/// Pooling and flattening as modules.

namespace lockstep::nn {

/// Largest value of each window.
class MaxPool2d : public Module {
 public:
  using Options = Pool2dOptions;
  /// `count_include_pad` means nothing here.
  explicit MaxPool2d(const Pool2dOptions& options) : options_(options) {}
  /// Windows that do not overlap.
  explicit MaxPool2d(Size2d kernel) : MaxPool2d(Pool2dOptions{.kernel = kernel}) {}
  /// @param x [N, C, H, W].
  Tensor forward(const Tensor& x) const { return max_pool2d(x, options_); }
  std::string describe() const override;

 private:
  Pool2dOptions options_;
};

/// Mean of each window.
class AvgPool2d : public Module {
 public:
  using Options = Pool2dOptions;
  /// With all options.
  explicit AvgPool2d(const Pool2dOptions& options) : options_(options) {}
  /// Windows that do not overlap.
  explicit AvgPool2d(Size2d kernel) : AvgPool2d(Pool2dOptions{.kernel = kernel}) {}
  /// @param x [N, C, H, W].
  Tensor forward(const Tensor& x) const { return avg_pool2d(x, options_); }
  std::string describe() const override;

 private:
  Pool2dOptions options_;
};

/// Means of windows chosen so that the result has a given size.
class AdaptiveAvgPool2d : public Module {
 public:
  /// @param output height and width of the result.
  explicit AdaptiveAvgPool2d(Size2d output) : output_(output) {}
  /// @param x [N, C, H, W].
  Tensor forward(const Tensor& x) const { return adaptive_avg_pool2d(x, output_); }
  std::string describe() const override;

 private:
  Size2d output_;
};

/// Largest value of each window of sequences.
class MaxPool1d : public Module {
 public:
  using Options = Pool1dOptions;
  /// `count_include_pad` means nothing here.
  explicit MaxPool1d(const Pool1dOptions& options) : options_(options) {}
  /// Windows that do not overlap.
  explicit MaxPool1d(std::int64_t kernel) : MaxPool1d(Pool1dOptions{.kernel = kernel}) {}
  /// @param x [N, C, L].
  Tensor forward(const Tensor& x) const { return max_pool1d(x, options_); }
  std::string describe() const override;

 private:
  Pool1dOptions options_;
};

/// Mean of each window of sequences.
class AvgPool1d : public Module {
 public:
  using Options = Pool1dOptions;
  /// With all options.
  explicit AvgPool1d(const Pool1dOptions& options) : options_(options) {}
  /// Windows that do not overlap.
  explicit AvgPool1d(std::int64_t kernel) : AvgPool1d(Pool1dOptions{.kernel = kernel}) {}
  /// @param x [N, C, L].
  Tensor forward(const Tensor& x) const { return avg_pool1d(x, options_); }
  std::string describe() const override;

 private:
  Pool1dOptions options_;
};

/// Means of windows of sequences, chosen so that the result has a given length.
class AdaptiveAvgPool1d : public Module {
 public:
  /// @param output length of the result.
  explicit AdaptiveAvgPool1d(std::int64_t output) : output_(output) {}
  /// @param x [N, C, L].
  Tensor forward(const Tensor& x) const { return adaptive_avg_pool1d(x, output_); }
  std::string describe() const override;

 private:
  std::int64_t output_;
};

/// Joins the dimensions from `start` to `end`, by default all but the batch.
class Flatten : public Module {
 public:
  /// Both ends are included; negative ones count from the back.
  explicit Flatten(std::int64_t start = 1, std::int64_t end = -1) : start_(start), end_(end) {}
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return x.flatten(start_, end_); }

 private:
  std::int64_t start_, end_;
};

/// Makes several dimensions of one.
class Unflatten : public Module {
 public:
  /// @param dim which one; negative: counted from the back. @param sizes their extents; one may be
  /// -1, and is what is left.
  Unflatten(std::int64_t dim, const Shape& sizes) : dim_(dim), sizes_(sizes) {}
  /// @param x any shape. @throws InvalidArgument where the extents do not make the dimension's.
  Tensor forward(const Tensor& x) const;

 private:
  std::int64_t dim_;
  Shape sizes_;
};

}  // namespace lockstep::nn
