#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/nn/conv2d.hpp"
#include "lockstep/nn/dropout.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/module_list.hpp"

/// @file
/// Small models to start with.

namespace lockstep::models {

/// Sizes of an Mlp.
struct MlpOptions {
  std::int64_t in = 784;
  std::vector<std::int64_t> hidden = {256};  ///< features of each hidden layer
  std::int64_t out = 10;
  TensorOptions tensor = {};  ///< dtype and device of the parameters
};

/// Fully connected layers with ReLU between.
class Mlp : public nn::Module {
 public:
  using Options = MlpOptions;
  /// @throws InvalidArgument for sizes below 1.
  explicit Mlp(const MlpOptions& options);
  /// @param x [N, ...]: all but the first dimension are joined to `in` features. @return [N, out].
  Tensor forward(const Tensor& x) const;

  nn::Child<nn::ModuleList<nn::Linear>> layers;
};

/// A new Mlp.
inline nn::ModulePtr<Mlp> mlp(const MlpOptions& options = {}) { return nn::make<Mlp>(options); }

/// Options of a SmallCnn.
struct SmallCnnOptions {
  std::int64_t num_classes = 10;
  double dropout = 0.25;
  TensorOptions tensor = {};  ///< dtype and device of the parameters
};

/// Two convolutions, each with ReLU and pooling, and two fully connected layers: more than 98 % on
/// MNIST.
class SmallCnn : public nn::Module {
 public:
  using Options = SmallCnnOptions;
  /// A new network.
  explicit SmallCnn(const SmallCnnOptions& options);
  /// @param x grey images [N, 1, 28, 28]. @return logits [N, num_classes].
  Tensor forward(const Tensor& x) const;

  nn::Child<nn::Conv2d> conv1;
  nn::Child<nn::Conv2d> conv2;
  nn::Child<nn::Linear> fc1;
  nn::Child<nn::Dropout> drop;
  nn::Child<nn::Linear> fc2;
};

/// A new SmallCnn.
inline nn::ModulePtr<SmallCnn> small_cnn(const SmallCnnOptions& options = {}) {
  return nn::make<SmallCnn>(options);
}

}  // namespace lockstep::models
