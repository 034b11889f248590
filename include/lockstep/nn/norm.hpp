#pragma once

#include <cstdint>
#include <string>

#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/nn/member.hpp"

/// @file
/// Layer, group and RMS normalisation.

namespace lockstep::nn {

/// Options of LayerNorm.
struct LayerNormOptions {
  Shape shape = {};  ///< the last extents of the input, normalised together
  double eps = 1e-5;
  bool affine = true;                           ///< learn a weight and a bias
  bool bias = true;                             ///< with `affine`: learn a bias too
  NormResult result = NormResult::as_computed;  ///< its dtype under mixed precision
  TensorOptions tensor = {};
};

/// Normalises the last dimensions to mean 0 and variance 1 (Ba, Kiros and Hinton 2016). Starts with
/// weight 1 and bias 0.
class LayerNorm : public Module {
 public:
  using Options = LayerNormOptions;
  /// @throws InvalidArgument for an empty shape.
  explicit LayerNorm(const LayerNormOptions& options);
  /// Over the last dimension alone.
  explicit LayerNorm(std::int64_t features, TensorOptions tensor = {})
      : LayerNorm(LayerNormOptions{.shape = {features}, .tensor = tensor}) {}

  /// @param x [..., shape]. @return x's shape.
  Tensor forward(const Tensor& x) const;
  std::string describe() const override;

 private:
  Shape shape_;
  double eps_;
  NormResult result_;

 public:
  Parameter weight;  ///< of the normalised shape, or undefined
  Parameter bias;    ///< of the normalised shape, or undefined
};

/// Options of GroupNorm.
struct GroupNormOptions {
  std::int64_t groups = 1;  ///< must divide the channels
  std::int64_t channels = 0;
  double eps = 1e-5;
  bool affine = true;  ///< learn a weight and a bias for each channel
  TensorOptions tensor = {};
};

/// Normalises groups of channels of [N, C, ...] (Wu and He 2018). Starts with weight 1 and bias 0.
class GroupNorm : public Module {
 public:
  using Options = GroupNormOptions;
  /// @throws InvalidArgument for groups that do not divide the channels.
  explicit GroupNorm(const GroupNormOptions& options);
  /// With a weight and a bias.
  GroupNorm(std::int64_t groups, std::int64_t channels)
      : GroupNorm(GroupNormOptions{.groups = groups, .channels = channels}) {}

  /// @param x [N, channels, ...]. @return x's shape.
  Tensor forward(const Tensor& x) const;
  std::string describe() const override;

 private:
  GroupNormOptions options_;

 public:
  Parameter weight;  ///< [channels], or undefined
  Parameter bias;    ///< [channels], or undefined
};

/// Options of InstanceNorm.
struct InstanceNormOptions {
  std::int64_t channels = 0;
  double eps = 1e-5;
  bool affine = false;  ///< learn a weight and a bias for each channel
  TensorOptions tensor = {};
};

/// Normalises each channel of each sample by itself, in training and evaluation alike (Ulyanov,
/// Vedaldi and Lempitsky 2016). What InstanceNorm1d and InstanceNorm2d share.
class InstanceNorm : public Module {
 public:
  using Options = InstanceNormOptions;
  std::string describe() const override;

 protected:
  /// @param dims of an input. @throws InvalidArgument for no channels.
  InstanceNorm(const InstanceNormOptions& options, int dims);
  /// @throws InvalidArgument for another input, and one value a channel, which would become 0.
  Tensor normalize(const Tensor& x) const;

 private:
  InstanceNormOptions options_;
  int dims_;

 public:
  Parameter weight;  ///< [channels], or undefined
  Parameter bias;    ///< [channels], or undefined
};

/// InstanceNorm of sequences [N, C, L].
class InstanceNorm1d : public InstanceNorm {
 public:
  /// With all options.
  explicit InstanceNorm1d(const InstanceNormOptions& options) : InstanceNorm(options, 3) {}
  /// Without a weight and a bias.
  explicit InstanceNorm1d(std::int64_t channels)
      : InstanceNorm1d(InstanceNormOptions{.channels = channels}) {}
  /// @param x [N, channels, L]. @return x's shape.
  Tensor forward(const Tensor& x) const { return normalize(x); }
};

/// InstanceNorm of images [N, C, H, W].
class InstanceNorm2d : public InstanceNorm {
 public:
  /// With all options.
  explicit InstanceNorm2d(const InstanceNormOptions& options) : InstanceNorm(options, 4) {}
  /// Without a weight and a bias.
  explicit InstanceNorm2d(std::int64_t channels)
      : InstanceNorm2d(InstanceNormOptions{.channels = channels}) {}
  /// @param x [N, channels, H, W]. @return x's shape.
  Tensor forward(const Tensor& x) const { return normalize(x); }
};

/// Options of RMSNorm.
struct RMSNormOptions {
  Shape shape = {};  ///< the last extents of the input, normalised together
  double eps = 1e-6;
  bool affine = true;                           ///< learn a weight
  NormResult result = NormResult::as_computed;  ///< its dtype under mixed precision
  TensorOptions tensor = {};
};

/// Divides the last dimensions by their root mean square (Zhang and Sennrich 2019). Starts with
/// weight 1.
class RMSNorm : public Module {
 public:
  using Options = RMSNormOptions;
  /// @throws InvalidArgument for an empty shape.
  explicit RMSNorm(const RMSNormOptions& options);
  /// Over the last dimension alone.
  explicit RMSNorm(std::int64_t features, TensorOptions tensor = {})
      : RMSNorm(RMSNormOptions{.shape = {features}, .tensor = tensor}) {}

  /// @param x [..., shape]. @return x's shape.
  Tensor forward(const Tensor& x) const;
  std::string describe() const override;

 private:
  Shape shape_;
  double eps_;
  NormResult result_;

 public:
  Parameter weight;  ///< of the normalised shape, or undefined
};

}  // namespace lockstep::nn
