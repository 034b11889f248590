#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/nn/checkpoint.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/parallel/delayed_reduction.hpp"
#include "lockstep/parallel/divergence_check.hpp"
#include "lockstep/parallel/power_sgd.hpp"
#include "lockstep/train/periodic_averaging.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/random_plan.hpp"

/// @file
/// Training of random models: by ranks, and in one process.

namespace lockstep::parallel::testing {

/// A linear layer whose weight may be another one's.
struct RandomLayer : nn::Module {
  RandomLayer(const Tensor& shared, bool has_bias, DType dtype)
      : weight(this, "weight",
               shared.defined() ? shared : zeros({Plan::width, Plan::width}, {.dtype = dtype})),
        bias(this, "bias", has_bias ? zeros({Plan::width}, {.dtype = dtype}) : Tensor()) {}
  Tensor forward(const Tensor& x) const { return linear(x, weight, bias); }

  nn::Parameter weight, bias;
};

struct RandomNet : nn::Module {
  explicit RandomNet(const Plan& from) : layers(this, "layers"), plan(from) {
    for (std::size_t i = 0; i < plan.layers; ++i) {
      const bool is_shared = plan.weights[i] != i;
      layers->append(nn::make<RandomLayer>(is_shared ? layers[plan.weights[i]]->weight : Tensor(),
                                           plan.has_bias[i], plan.dtypes[i]));
    }
    if (plan.normalized)
      norm.emplace(
          this, "norm",
          nn::BatchNormLayerOptions{.channels = Plan::width, .tensor = {.dtype = DType::f64}});
    fill(*this, plan.seed);
    to(device_of_rank);
    for (std::size_t i = 0; i < plan.layers; ++i)
      if (plan.is_frozen[i]) layers[i]->requires_grad_(false);
  }

  Tensor forward(const Tensor& x, const Calls& calls) {
    Tensor y = x;
    for (const std::size_t i : calls) {
      const auto layer = [this, i](const Tensor& in) {
        const Tensor x_i = in.to(plan.dtypes[i]);
        const Tensor y_i = plan.calls_modules ? layers[i](x_i) : layers[i]->forward(x_i);
        return tanh(plan.normalized == i ? (*norm)(y_i.to(DType::f64)) : y_i);
      };
      y = plan.is_computed_again[i] ? nn::checkpoint(layer, y) : layer(y);
    }
    return y.to(DType::f64);
  }
  /// The loss of a step on the batches of all ranks.
  Tensor forward(int step);

  nn::Child<nn::ModuleList<RandomLayer>> layers;
  std::optional<nn::Child<nn::BatchNorm1d>> norm;
  const Plan& plan;
};

template <class Parameters>
std::unique_ptr<optim::Optimizer> optimizer_of(const Plan& plan, const Parameters& parameters) {
  if (plan.is_adaptive)
    return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 1e-2, .eps = 1e-2});
  return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
}

/// What ranks with a norm over all their batches have together: equal weights of rows.
inline Tensor normalized_loss(RandomNet& net, int step) {
  const Plan& plan = net.plan;
  Tensor total = zeros({}, {.dtype = DType::f64, .device = device_of_rank});
  double weights = 0;
  for (int micro = 0; micro < plan.micro_batches; ++micro) {
    const Batch batch = plan.whole_batch(step, micro);
    const double weight = plan.is_weighted ? static_cast<double>(batch.x.size(0))
                                           : double(plan.ranks) / plan.averaged_count();
    total = total + loss_of(net.forward(batch.x, plan.calls(0, step)), batch) * weight;
    weights += weight;
  }
  return plan.is_weighted ? total / weights : total;
}

inline Tensor RandomNet::forward(int step) {
  if (plan.normalized) return normalized_loss(*this, step);
  Tensor total = zeros({}, {.dtype = DType::f64, .device = device_of_rank});
  double weights = 0;
  for (int rank = 0; rank < plan.ranks; ++rank)
    for (int micro = 0; micro < plan.micro_batches; ++micro) {
      const Batch batch = plan.batch(rank, step, micro);
      const auto rows = static_cast<double>(batch.x.size(0));
      // Of a static graph, a rank that has no data now, but had some, has zeros.
      const bool has_had_data = plan.rows(rank, 0) > 0 || step > 1;
      if (rows == 0 && (!plan.options.static_graph || !has_had_data)) continue;
      if (rows == 0) {
        const Tensor x = zeros({1, Plan::width}, {.dtype = DType::f64, .device = device_of_rank});
        total = total + forward(x, plan.calls(rank, step)).sum() * 0.0;
        continue;
      }
      const double weight = plan.is_weighted ? rows : 1.0 / plan.averaged_count();
      total = total + loss_of(forward(batch.x, plan.calls(rank, step)), batch) * weight;
      weights += weight;
    }
  return plan.is_weighted ? total / weights : total;
}

/// Trains a model in one process. @param loss_of_step of the model, of a step
inline std::vector<double> train_alone(const Plan& plan, const nn::ModulePtr<RandomNet>& net,
                                       const std::function<Tensor(int)>& loss_of_step) {
  const auto optimizer = optimizer_of(plan, net->named_parameters());
  for (int step = 0; step < plan.steps; ++step) {
    loss_of_step(step).backward();
    if (plan.clips) optim::clip_grad_norm_(net->parameters(), 0.05);
    optimizer->step();
    optimizer->zero_grad();
  }
  return values_of(*net);
}

using RandomReplica = DistributedDataParallel<RandomNet>;

inline void register_hook(const Plan& plan, RandomReplica& replica) {
  using enum Plan::Hook;
  if (plan.hook == averaging)
    replica.register_comm_hook("averages", [](GradBucket& bucket) -> BucketExchange {
      co_await bucket.all_reduce(bucket.buffer(), comm::ReduceOp::average());
    });
  if (plan.hook == power_sgd)
    replica.register_comm_hook(
        std::make_shared<PowerSgd>(PowerSgdOptions{.start_iteration = plan.low_rank_from}));
  if (plan.hook == rounding) replica.register_comm_hook(compress_buckets(plan.compressed_to));
  if (plan.hook == delayed) replica.register_comm_hook(std::make_shared<DelayedReduction>());
}

/// PowerSGD is linear in what the ranks have: together they do what one with their mean does.
inline std::vector<double> train_alone(const Plan& plan) {
  const auto net = nn::make<RandomNet>(plan);
  if (plan.hook != Plan::Hook::power_sgd)
    return train_alone(plan, net, [&](int step) { return net->forward(step); });
  std::vector<double> values;
  comm::run_ranks(1, [&](Communicator& self) {
    RandomReplica replica(net, share(self), {.find_unused_parameters = true});
    register_hook(plan, replica);
    values = train_alone(plan, net, [&](int step) { return replica(step); });
  });
  return values;
}

inline std::unique_ptr<PeriodicAveraging> averaging_of(const Plan& plan, RandomReplica& replica,
                                                       optim::Optimizer& optimizer) {
  if (plan.async == Plan::Async::local)
    return std::make_unique<LocalSGD>(replica, optimizer, LocalSGDOptions{.sync_every = 1});
  if (plan.async == Plan::Async::diloco)
    return std::make_unique<DiLoCo>(replica, optimizer, DiLoCoOptions{.sync_every = 2});
  return nullptr;
}

/// What a rank of a training does beside it, where the program's own code runs: pause, or throw.
struct Interruptions {
  std::function<void()> before_step = [] {};
  std::function<void()> within_step = [] {};  // also as a gradient becomes ready
};

inline std::vector<double> train_on(Communicator& group, const Plan& plan,
                                    const Interruptions& interruptions = {}) {
  const auto net = nn::make<RandomNet>(plan);
  for (const Tensor& parameter : net->parameters())
    if (parameter.requires_grad())
      autograd::leaf_of(parameter).add_hook(
          [&](autograd::LeafNode&) { interruptions.within_step(); });
  nn::convert_sync_batchnorm(*net, share(group));
  RandomReplica replica(net, share(group), plan.options);
  register_hook(plan, replica);
  const auto optimizer = optimizer_of(plan, replica.named_parameters());
  const auto averaging = averaging_of(plan, replica, *optimizer);
  amp::GradScaler scaler(
      {.init_scale = 64, .enabled = plan.scales, .group = replica.shard_group()});
  const int rank = group.rank();
  int step = 0;
  const StepGraph::Step run = [&](std::span<const Tensor> in) {
    for (int micro = 0; micro < plan.micro_batches; ++micro) {
      std::optional<RandomReplica::NoSync> local;
      if (micro + 1 < plan.micro_batches) local.emplace(replica.no_sync());
      const auto at = static_cast<std::size_t>(2 * micro);
      const Batch batch{in[at], in[at + 1]};
      const auto rows = static_cast<double>(batch.x.size(0));
      if (rows == 0) {
        if (!local) replica.backward_without_data();
        continue;
      }
      interruptions.within_step();
      const Tensor loss = scaler.scale(loss_of(replica(batch.x, plan.calls(rank, step)), batch));
      interruptions.within_step();
      if (plan.looks) {
        const auto whole = replica.whole_parameters();
        (void)values_of(*net);
      }
      if (plan.is_weighted)
        replica.backward(loss, rows);
      else
        loss.backward();
    }
    if (plan.clips) {
      scaler.clip_and_step(*optimizer, 0.05);
    } else {
      scaler.step(*optimizer);
    }
    scaler.update();
    optimizer->zero_grad();
    return std::vector<Tensor>{};
  };
  StepGraph graph(run, {.group = share(group)});
  const auto evaluate = [&] {
    const NoGradGuard no_recording;
    (void)replica(plan.batch(0, step, 0).x, plan.calls(0, step));
  };
  std::optional<DivergenceCheck> divergence;
  if (plan.checks_divergence)
    divergence.emplace(net->named_parameters(), share(group), DivergenceCheckOptions{.every = 1});
  for (; step < plan.steps; ++step) {
    interruptions.before_step();
    std::vector<Tensor> in;
    for (int micro = 0; micro < plan.micro_batches; ++micro) {
      const Batch batch = plan.batch(rank, step, micro);
      in.insert(in.end(), {batch.x, batch.target});
    }
    if (plan.one_skips && rank == 1 && step == 1) continue;
    plan.is_captured ? graph(in) : run(in);
    if (plan.evaluates) evaluate();
    const auto whole = replica.whole_parameters();
    if (divergence) divergence->step();
  }
  if (averaging) averaging->synchronize();
  const auto whole = replica.whole_parameters();
  expect_equal_replicas(group, *net);
  return values_of(*net);
}

}  // namespace lockstep::parallel::testing
