#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/nn/batch_norm.hpp"
#include "lockstep/nn/conv2d.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/module_list.hpp"
#include "lockstep/nn/sequential.hpp"

/// @file
/// Residual networks for images (He et al. 2016), with torchvision's names.

namespace lockstep::models {

/// Options of the residual networks.
struct ResNetOptions {
  std::int64_t num_classes = 1000;
  std::int64_t in_channels = 3;
  std::int64_t width = 64;    ///< channels of the first stage; each further one has twice as many
  TensorOptions tensor = {};  ///< dtype and device of the parameters
};

/// A residual block of either kind.
struct ResidualBlock : nn::Module {
  /// @param x [N, in, H, W]. @return [N, out, H / stride, W / stride].
  virtual Tensor forward(const Tensor& x) = 0;
};

/// Extents of a residual block.
struct ResidualBlockOptions {
  std::int64_t in = 0;      ///< channels of the input
  std::int64_t planes = 0;  ///< channels inside
  std::int64_t stride = 1;  ///< of the block's 3 x 3 convolution that shrinks the image
  TensorOptions tensor = {};
};

/// Two 3 x 3 convolutions: the block of ResNet-18 and 34.
struct BasicBlock : ResidualBlock {
  static constexpr std::int64_t expansion = 1;
  /// The block of the given extents.
  explicit BasicBlock(const ResidualBlockOptions& options);
  Tensor forward(const Tensor& x) override;

  nn::Child<nn::Conv2d> conv1;
  nn::Child<nn::BatchNorm2d> bn1;
  nn::Child<nn::Conv2d> conv2;
  nn::Child<nn::BatchNorm2d> bn2;
  std::optional<nn::Child<nn::Sequential>> downsample;
};

/// 1 x 1, 3 x 3 and 1 x 1 convolutions, four times as wide outside: the block of ResNet-50. The
/// stride is in the 3 x 3 convolution ("v1.5").
struct Bottleneck : ResidualBlock {
  static constexpr std::int64_t expansion = 4;
  /// The block of the given extents.
  explicit Bottleneck(const ResidualBlockOptions& options);
  Tensor forward(const Tensor& x) override;

  nn::Child<nn::Conv2d> conv1;
  nn::Child<nn::BatchNorm2d> bn1;
  nn::Child<nn::Conv2d> conv2;
  nn::Child<nn::BatchNorm2d> bn2;
  nn::Child<nn::Conv2d> conv3;
  nn::Child<nn::BatchNorm2d> bn3;
  std::optional<nn::Child<nn::Sequential>> downsample;
};

/// A residual network. Convolutions start normal with variance 2 / fan out, norms as identity.
class ResNet : public nn::Module {
 public:
  using Stage = nn::ModuleList<ResidualBlock>;
  /// Which network.
  enum class Depth : unsigned char { d18, d34, d50 };
  /// The network of a depth.
  ResNet(Depth depth, const ResNetOptions& options);

  /// @param x images [N, in_channels, H, W]. @return logits [N, num_classes].
  Tensor forward(const Tensor& x);

  nn::Child<nn::Conv2d> conv1;
  nn::Child<nn::BatchNorm2d> bn1;
  nn::Child<Stage> layer1;
  nn::Child<Stage> layer2;
  nn::Child<Stage> layer3;
  nn::Child<Stage> layer4;
  nn::Child<nn::Linear> fc;
};

/// ResNet-18.
nn::ModulePtr<ResNet> resnet18(const ResNetOptions& options = {});
/// ResNet-34.
nn::ModulePtr<ResNet> resnet34(const ResNetOptions& options = {});
/// ResNet-50.
nn::ModulePtr<ResNet> resnet50(const ResNetOptions& options = {});

}  // namespace lockstep::models
