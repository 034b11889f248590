#include "lockstep/models/resnet.hpp"

#include <array>

#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/spatial.hpp"
#include "lockstep/nn/init.hpp"

namespace lockstep::models {
namespace {

/// A convolution without bias, padded so that stride 1 keeps the image's size.
nn::Conv2dOptions conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                       TensorOptions tensor) {
  return {.in = in,
          .out = out,
          .kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .bias = false,
          .tensor = tensor};
}

/// A norm, and the residual and ReLU behind it.
nn::BatchNormLayerOptions norm_relu(std::int64_t channels, TensorOptions tensor) {
  return {.channels = channels, .relu = true, .tensor = tensor};
}

/// The projection beside a block that changes the shape.
template <class Block>
void add_downsample(Block& block, const ResidualBlockOptions& options) {
  const std::int64_t out = options.planes * Block::expansion;
  if (options.stride == 1 && options.in == out) return;
  block.downsample.emplace(
      &block, "downsample",
      nn::make<nn::Conv2d>(conv(options.in, out, 1, options.stride, options.tensor)),
      nn::make<nn::BatchNorm2d>(
          nn::BatchNormLayerOptions{.channels = out, .tensor = options.tensor}));
}

using Stage = ResNet::Stage;

/// `count` blocks; the first takes `in` channels and shrinks the image.
template <class Block>
nn::ModulePtr<Stage> stage(std::int64_t count, ResidualBlockOptions options) {
  auto blocks = nn::make<Stage>();
  for (std::int64_t i = 0; i < count; ++i) {
    blocks->append(nn::make<Block>(options));
    options.in = options.planes * Block::expansion;
    options.stride = 1;
  }
  return blocks;
}

/// Stage `i` (from 0) of a network.
nn::ModulePtr<Stage> stage_of(ResNet::Depth depth, int i, const ResNetOptions& o) {
  constexpr std::array<std::int64_t, 4> blocks18 = {2, 2, 2, 2}, blocks34 = {3, 4, 6, 3};
  const auto at = static_cast<std::size_t>(i);
  const bool wide = depth == ResNet::Depth::d50;
  const std::int64_t planes = o.width << i, before = i == 0 ? o.width : planes / 2;
  const std::int64_t in = wide && i > 0 ? before * Bottleneck::expansion : before;
  const ResidualBlockOptions options{
      .in = in, .planes = planes, .stride = i == 0 ? 1 : 2, .tensor = o.tensor};
  if (wide) return stage<Bottleneck>(blocks34[at], options);
  return stage<BasicBlock>((depth == ResNet::Depth::d18 ? blocks18 : blocks34)[at], options);
}

Tensor run(const Stage& blocks, Tensor x) {
  for (const auto& block : blocks) x = block(x);
  return x;
}

}  // namespace

BasicBlock::BasicBlock(const ResidualBlockOptions& o)
    : conv1(this, "conv1", conv(o.in, o.planes, 3, o.stride, o.tensor)),
      bn1(this, "bn1", norm_relu(o.planes, o.tensor)),
      conv2(this, "conv2", conv(o.planes, o.planes, 3, 1, o.tensor)),
      bn2(this, "bn2", norm_relu(o.planes, o.tensor)) {
  add_downsample(*this, o);
}

Tensor BasicBlock::forward(const Tensor& x) {
  const Tensor y = conv2(bn1(conv1(x)));
  return bn2(y, downsample ? (*downsample)(x) : x);
}

Bottleneck::Bottleneck(const ResidualBlockOptions& o)
    : conv1(this, "conv1", conv(o.in, o.planes, 1, 1, o.tensor)),
      bn1(this, "bn1", norm_relu(o.planes, o.tensor)),
      conv2(this, "conv2", conv(o.planes, o.planes, 3, o.stride, o.tensor)),
      bn2(this, "bn2", norm_relu(o.planes, o.tensor)),
      conv3(this, "conv3", conv(o.planes, o.planes * expansion, 1, 1, o.tensor)),
      bn3(this, "bn3", norm_relu(o.planes * expansion, o.tensor)) {
  add_downsample(*this, o);
}

Tensor Bottleneck::forward(const Tensor& x) {
  const Tensor y = conv3(bn2(conv2(bn1(conv1(x)))));
  return bn3(y, downsample ? (*downsample)(x) : x);
}

ResNet::ResNet(Depth depth, const ResNetOptions& options)
    : conv1(this, "conv1", conv(options.in_channels, options.width, 7, 2, options.tensor)),
      bn1(this, "bn1", norm_relu(options.width, options.tensor)),
      layer1(this, "layer1", stage_of(depth, 0, options)),
      layer2(this, "layer2", stage_of(depth, 1, options)),
      layer3(this, "layer3", stage_of(depth, 2, options)),
      layer4(this, "layer4", stage_of(depth, 3, options)),
      fc(this, "fc", 8 * options.width * (depth == Depth::d50 ? Bottleneck::expansion : 1),
         options.num_classes, options.tensor) {
  for (auto& [name, parameter] : named_parameters())
    if (parameter.dim() == 4)
      nn::init::kaiming_normal_(parameter, {.mode = nn::init::FanMode::out});
}

Tensor ResNet::forward(const Tensor& x) {
  Tensor y = bn1(conv1(x));
  y = max_pool2d(y, {.kernel = 3, .stride = 2, .padding = 1});
  for (const auto* layer : {&layer1, &layer2, &layer3, &layer4}) y = run(**layer, y);
  return fc(adaptive_avg_pool2d(y, 1).flatten(1));
}

nn::ModulePtr<ResNet> resnet18(const ResNetOptions& options) {
  return nn::make<ResNet>(ResNet::Depth::d18, options);
}
nn::ModulePtr<ResNet> resnet34(const ResNetOptions& options) {
  return nn::make<ResNet>(ResNet::Depth::d34, options);
}
nn::ModulePtr<ResNet> resnet50(const ResNetOptions& options) {
  return nn::make<ResNet>(ResNet::Depth::d50, options);
}

}  // namespace lockstep::models
