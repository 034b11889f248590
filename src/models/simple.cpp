#include "lockstep/models/simple.hpp"

#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/spatial.hpp"

namespace lockstep::models {

Mlp::Mlp(const MlpOptions& options) : layers(this, "layers") {
  std::int64_t in = options.in;
  for (const std::int64_t out : options.hidden) {
    layers->append(nn::make<nn::Linear>(in, out, options.tensor));
    in = out;
  }
  layers->append(nn::make<nn::Linear>(in, options.out, options.tensor));
}

Tensor Mlp::forward(const Tensor& x) const {
  Tensor y = layers[0](x.flatten(1));
  for (std::size_t i = 1; i < layers->size(); ++i) y = layers[i](relu(y));
  return y;
}

SmallCnn::SmallCnn(const SmallCnnOptions& options)
    : conv1(this, "conv1",
            {.in = 1, .out = 16, .kernel = 3, .padding = 1, .tensor = options.tensor}),
      conv2(this, "conv2",
            {.in = 16, .out = 32, .kernel = 3, .padding = 1, .tensor = options.tensor}),
      fc1(this, "fc1", 32 * 7 * 7, 128, options.tensor),
      drop(this, "drop", options.dropout),
      fc2(this, "fc2", 128, options.num_classes, options.tensor) {}

Tensor SmallCnn::forward(const Tensor& x) const {
  Tensor y = max_pool2d(relu(conv1(x)), {.kernel = 2});
  y = max_pool2d(relu(conv2(y)), {.kernel = 2});
  return fc2(drop(relu(fc1(y.flatten(1)))));
}

}  // namespace lockstep::models
