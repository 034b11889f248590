#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include <lockstep/lockstep.hpp>

/// @file
/// The training whose checkpoints are measured, and times of all ranks.

namespace lockstep::benchmark {

inline double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double largest(comm::Communicator& group, double value) {
  return comm::all_reduce_scalar(group, value, comm::ReduceOp::max());
}

/// The time of the slowest rank.
inline double slowest(comm::Communicator& group, const std::function<void()>& body) {
  group.barrier().wait();
  return largest(group, seconds(body));
}

inline double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Linear layers with AdamW: a third of the state is weights, and the rest moments.
class CheckpointTraining {
 public:
  struct Sizes {
    std::int64_t layers = 8, width = 2048, batch = 64;
    double state_megabytes() const { return double(layers * width * (width + 1)) * 12 / 1e6; }
  };

  CheckpointTraining(const CommunicatorPtr& group, const Sizes& sizes)
      : net_(nn::make<nn::Sequential>()),
        x_(randn({sizes.batch, sizes.width})),
        ddp_((fill(sizes), net_), group),
        optimizer_(ddp_.named_parameters(), {.lr = 1e-4}) {}

  void step() {
    optimizer_.zero_grad();
    const Tensor y = ddp_(x_);
    (y * y).mean().backward();
    optimizer_.step();
  }
  void add_to(checkpoint::Manager& checkpoints) {
    checkpoints.add("model", ddp_);
    checkpoints.add("optimizer", optimizer_, ddp_);
  }

 private:
  void fill(const Sizes& sizes) {
    for (std::int64_t i = 0; i < sizes.layers; ++i)
      net_->append(nn::make<nn::Linear>(sizes.width, sizes.width));
  }

  nn::ModulePtr<nn::Sequential> net_;
  Tensor x_;
  DistributedDataParallel<nn::Sequential> ddp_;
  optim::AdamW optimizer_;
};

}  // namespace lockstep::benchmark
