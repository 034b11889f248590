#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "parallel/ranks.hpp"

/// @file
/// Small models for the tests of data parallelism, and ways to compare them between ranks.

namespace lockstep::parallel::testing {

/// Four layers of which each forward may use some; may sleep between them.
struct Net : nn::Module {
  explicit Net(TensorOptions tensor) : layers(this, "layers") {
    const std::array<std::int64_t, 5> widths{6, 16, 16, 16, 3};
    for (std::size_t i = 0; i < 4; ++i)
      layers->append(nn::make<nn::Linear>(widths[i], widths[i + 1], tensor));
  }

  /// @param x [N, 6]. @return [N, 3]. Layers of `skipped` (1 or 2) take no part.
  Tensor forward(const Tensor& x, const std::vector<std::size_t>& skipped = {}) {
    Tensor y = x;
    for (std::size_t i = 0; i < 4; ++i) {
      if (std::ranges::find(skipped, i) != skipped.end()) continue;
      if (delay) delay();
      y = checkpoints ? nn::checkpoint([this, i](const Tensor& in) { return run(i, in); }, y)
                      : run(i, y);
    }
    return y;
  }

  Tensor run(std::size_t i, const Tensor& x) {
    const Tensor y = calls_layers ? layers[i](x) : layers[i]->forward(x);
    return i < 3 ? tanh(y) : y;
  }

  nn::Child<nn::ModuleList<nn::Linear>> layers;
  std::function<void()> delay;  ///< called before each layer
  bool calls_layers = false;    ///< with their hooks
  bool checkpoints = false;     ///< each layer runs again in backward
};

/// A linear layer behind batch norm.
struct NormNet : nn::Module {
  nn::Child<nn::BatchNorm1d> norm{
      this, "norm", nn::BatchNormLayerOptions{.channels = 6, .tensor = {.dtype = DType::f64}}};
  nn::Child<nn::Linear> output{this, "output", 6, 3, TensorOptions{.dtype = DType::f64}};
  Tensor forward(const Tensor& x) {
    if (!when_recomputed) return output(norm(x));
    const auto part = [this](const Tensor& in) {
      if (autograd::Recomputation::is_running()) when_recomputed();
      return norm(in);
    };
    return output(nn::checkpoint(part, x));
  }

  std::function<void()> when_recomputed;  ///< the norm runs again in backward, behind this
};

/// Layers wide enough for backward to take a while.
struct WideNet : nn::Module {
  nn::Child<nn::ModuleList<nn::Linear>> layers{this, "layers", 8, 384, 384};
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (const auto& layer : *layers) y = tanh(layer(y));
    return y;
  }
};

/// Fills all parameters from a seed.
inline void fill(nn::Module& module, std::uint64_t seed) {
  const NoGradGuard no_grad;
  Generator generator(seed);
  for (Tensor& parameter : module.parameters())
    parameter.copy_(randn(parameter.shape(), {.dtype = DType::f64}, generator) * 0.3);
}

/// A Net with the values of a seed.
inline nn::ModulePtr<Net> make_net(std::uint64_t seed, DType dtype = DType::f64) {
  auto net = nn::make<Net>(TensorOptions{.dtype = dtype});
  fill(*net, seed);
  net->to(device_of_rank);
  return net;
}

/// Inputs [rows, 6] and targets [rows, 3] of one step; rank r of n takes rows r * rows / n on.
struct Batch {
  Tensor x, target;

  /// The whole batch of a step.
  static Batch of_step(int step, DType dtype = DType::f64, std::int64_t rows = 12) {
    Generator generator(1000 + static_cast<std::uint64_t>(step));
    const TensorOptions f64{.dtype = DType::f64};
    Batch batch;
    batch.x = randn({rows, 6}, f64, generator).to(dtype).to(device_of_rank);
    batch.target = randn({rows, 3}, f64, generator).to(dtype).to(device_of_rank);
    return batch;
  }
  /// One of equal parts.
  Batch part(int index, int parts) const {
    const std::int64_t rows = x.size(0) / parts;
    return {x.slice(0, index * rows, (index + 1) * rows).to(device_of_rank),
            target.slice(0, index * rows, (index + 1) * rows).to(device_of_rank)};
  }
};

/// All values of a module's parameters, one after the other.
inline std::vector<double> values_of(const nn::Module& module) {
  std::vector<double> all;
  for (const Tensor& parameter : module.parameters()) {
    const auto values = parameter.to_vector<double>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// All gradients, one after the other; none counts as zeros.
inline std::vector<double> gradients_of(const nn::Module& module) {
  std::vector<double> all;
  for (const Tensor& parameter : module.parameters()) {
    const auto values = parameter.grad().defined()
                            ? parameter.grad().to_vector<double>()
                            : std::vector<double>(static_cast<std::size_t>(parameter.numel()));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// A hash over the bits of all parameters.
inline std::size_t hash_of(const nn::Module& module) {
  const std::vector<double> values = values_of(module);
  return std::hash<std::string_view>{}(
      {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
}

/// Fails unless all ranks hold the same parameters, bit for bit.
inline void expect_equal_replicas(comm::Communicator& group, const nn::Module& module) {
  const std::string own = std::to_string(hash_of(module));
  for (const std::string& other : comm::all_gather_bytes(group, own)) EXPECT_EQ(other, own);
}

/// Fails at the first element that is further off than absolute + relative * |expected|.
inline void expect_close(const std::vector<double>& actual, const std::vector<double>& expected,
                         double relative, double absolute) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], absolute + relative * std::abs(expected[i]))
        << "element " << i;
}

/// Runs `action` and returns the message of the error it throws; fails if there is none.
inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

using Replica = DistributedDataParallel<Net>;

inline constexpr DistributedDataParallelOptions small_buckets{.bucket_bytes = 1 << 11,
                                                              .first_bucket_bytes = 1 << 8};

inline Batch own_part(Communicator& group, int step, DType dtype = DType::f64) {
  return Batch::of_step(step, dtype).part(group.rank(), group.size());
}

inline Tensor loss_of(const Tensor& prediction, const Batch& batch) {
  return mse_loss(prediction, batch.target);
}

/// The gradients of a step whose rank r has its part of the batch, with or without a hook.
inline std::vector<double> gradients_by(Communicator& group,
                                        const std::shared_ptr<BucketReduction>& hook,
                                        DType dtype = DType::f64, int steps = 2) {
  Replica replica(make_net(3, dtype), share(group), small_buckets);
  if (hook) replica.register_comm_hook(hook);
  for (int step = 0; step < steps; ++step) {
    const Batch batch = Batch::of_step(step, dtype).part(group.rank(), group.size());
    replica.module().zero_grad();
    loss_of(replica(batch.x), batch).backward();
  }
  return gradients_of(replica.module());
}

/// The user's loop.
inline void train_steps(Replica& replica, optim::Optimizer& optimizer, Communicator& group,
                        int begin, int end, DType dtype = DType::f64) {
  for (int step = begin; step < end; ++step) {
    const Batch batch = own_part(group, step, dtype);
    loss_of(replica(batch.x), batch).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
}

}  // namespace lockstep::parallel::testing
