#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/tensor_dataset.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/nn/dropout.hpp"
#include "lockstep/nn/functional.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/weight_average.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/train/step.hpp"

/// @file
/// A training with all that steps may have, for tests of steps and loops.

namespace lockstep::train {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Net : nn::Module {
  nn::Child<nn::Linear> hidden{this, "hidden", 6, 9};
  nn::Child<nn::Dropout> drop{this, "drop", 0.3};
  nn::Child<nn::Dropout> frozen{this, "frozen", 0.9};
  nn::Child<nn::Linear> output{this, "output", 9, 1};
  Tensor forward(const Tensor& x) { return output(frozen(drop(relu(hidden(x))))); }
};
using Ddp = DistributedDataParallel<Net>;
using Inputs = std::span<const Tensor>;

inline data::TensorDataset samples() {
  Generator generator(5);
  const NoGradGuard no_recording;
  const Tensor x = randn({22, 6}, {}, generator);
  return data::TensorDataset({x, x.slice(1, 0, 1) * 2 + 1});
}

inline nn::ModulePtr<Net> make_net(DType dtype = DType::f32) {
  manual_seed(7);
  auto net = nn::make<Net>();
  net->to(dtype);
  net->frozen->eval();
  return net;
}

/// One rank of a training of 5 steps an epoch, and what is known of it.
struct Training {
  explicit Training(const CommunicatorPtr& group, const StepOptions& more = {},
                    DType dtype = DType::f32, int zero = 0)
      : net(make_net(dtype)),
        ddp(net, group, {.zero_stage = zero}),
        optimizer(ddp.named_parameters(), {.lr = 0.05}),
        scheduler(optimizer, optim::CosineAnnealingLR{.iterations = 40}),
        scaler({.init_scale = 8, .growth_interval = 3, .group = ddp.shard_group()}),
        average(net->named_parameters(), {.decay = 0.9}),
        step(
            ddp, optimizer,
            [this, dtype](Inputs in) {
              return nn::functional::mse_loss(ddp(in[0].to(dtype)).to(DType::f32), in[1]);
            },
            options_of(more)),
        loader(samples(), data::RandomSampler(22, 3),
               {.batch_size = 4,
                .drop_last = true,
                .rank = group->rank(),
                .world_size = group->size(),
                .seed = 3}) {
    manual_seed(100 + static_cast<std::uint64_t>(group->rank()));
  }

  StepOptions options_of(StepOptions options) {
    options.scheduler = &scheduler;
    options.scaler = &scaler;
    options.average = &average;
    return options;
  }
  std::string weights() const {
    std::string bytes;
    for (const auto& [name, tensor] : net->state_dict())
      bytes.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
    return bytes;
  }
  /// A mean over draws, so that evaluations would disturb a training whose draws they took.
  double loss() {
    const auto scope = step.evaluation();
    EXPECT_FALSE(net->is_training() || net->drop->is_training());
    const auto all = samples().fetch(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
    const Tensor noise = randn({6, 6}) * 0.5;
    const Tensor inputs = (all[0] + noise).to(net->hidden->weight.dtype());
    return nn::functional::mse_loss(net(inputs).to(DType::f32), all[1]).item();
  }

  nn::ModulePtr<Net> net;
  Ddp ddp;
  optim::AdamW optimizer;
  optim::LRScheduler scheduler;
  amp::GradScaler scaler;
  optim::WeightAverage average;
  Step step;
  data::DataLoader<data::TensorDataset> loader;
};

}  // namespace lockstep::train
