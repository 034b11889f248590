#pragma once

#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/ddp/reducer.hpp"
#include "lockstep/nn/module.hpp"
#include "lockstep/nn/module_ptr.hpp"

/// @file
/// Data-parallel training of a module.

namespace lockstep {

/// Options of DistributedDataParallel; names and defaults are PyTorch's.
struct DistributedDataParallelOptions {
  /// Gradients are reduced in buckets of about this many bytes; the last bucket to become ready is
  /// smaller (`first_bucket_bytes`, as PyTorch calls it).
  std::size_t bucket_bytes = ddp::BucketCaps{}.bytes;
  std::size_t first_bucket_bytes = ddp::BucketCaps{}.last_bytes;
  /// Parameters may take no part in a backward; see ddp::ReducerOptions.
  bool find_unused_parameters = false;
  /// Every training forward starts with rank 0's buffers (running statistics).
  bool broadcast_buffers = true;
};

namespace ddp {

/// What DistributedDataParallel does that does not depend on the module's type.
class ReplicatedModule {
 public:
  /// Compares the module between the ranks, gives all of them rank 0's values, and takes over the
  /// gradients. @throws as Reducer.
  ReplicatedModule(nn::ModulePtr<nn::Module> module, comm::CommunicatorPtr group,
                   DistributedDataParallelOptions options);

  /// Before a forward: checks that no parameter was replaced, and sends buffers.
  void before_forward();
  /// After a forward: announces the backward.
  void after_forward(std::span<const Tensor> outputs);
  /// Whether backward reduces. Returns the former value.
  bool set_synchronized(bool synchronized) noexcept {
    reducer_->set_accumulation_scope(!synchronized);
    return std::exchange(synchronized_, synchronized);
  }
  /// The reducer, for its trace and buckets.
  const Reducer& reducer() const noexcept { return *reducer_; }

 private:
  void check_same_tensors() const;

  nn::ModulePtr<nn::Module> module_;
  comm::CommunicatorPtr group_;
  DistributedDataParallelOptions options_;
  std::vector<NamedParameter> parameters_;
  std::vector<bool> trained_;  // which of them require a gradient
  std::unique_ptr<Reducer> reducer_;
  bool synchronized_ = true;
};

/// Appends the tensors of a forward's result: a Tensor, or vectors, pairs and tuples of them.
template <class Output>
void collect_tensors(const Output& output, std::vector<Tensor>& tensors) {
  if constexpr (std::is_same_v<Output, Tensor>) {
    tensors.push_back(output);
  } else if constexpr (requires { std::tuple_size<Output>::value; }) {
    std::apply([&](const auto&... parts) { (collect_tensors(parts, tensors), ...); }, output);
  } else if constexpr (requires { output.begin(); }) {
    for (const auto& part : output) collect_tensors(part, tensors);
  }
}

}  // namespace ddp

/// Trains one replica of a module per rank: after each backward all ranks hold the average of their
/// gradients, so the same optimizer step keeps the replicas equal. The all-reduce runs while
/// backward goes on. Call this object instead of the module. All ranks must make the same calls.
///
/// Average means the mean over ranks of each rank's own gradient: scale the loss if ranks see
/// batches of different size.
template <class M>
class DistributedDataParallel {
 public:
  using Options = DistributedDataParallelOptions;

  /// Makes all replicas equal to rank 0's. @param module on the group's device, in its final dtype,
  /// with parameters that shall not train frozen. @throws comm::Mismatch naming the first parameter
  /// that differs between ranks.
  DistributedDataParallel(nn::ModulePtr<M> module, comm::CommunicatorPtr group,
                          const Options& options = {})
      : module_(std::move(module)), replica_(module_, std::move(group), options) {}

  /// The module's forward.
  template <class... Args>
  auto operator()(Args&&... args) {
    replica_.before_forward();
    auto output = module_->forward(std::forward<Args>(args)...);
    if (grad_enabled()) {
      std::vector<Tensor> tensors;
      ddp::collect_tensors(output, tensors);
      replica_.after_forward(tensors);
    }
    return output;
  }

  /// Until the guard ends, forwards and their backwards only accumulate on this rank; the first
  /// backward after it reduces all. Saves communication between micro-batches.
  class NoSync {
   public:
    /// Stops synchronising.
    explicit NoSync(ddp::ReplicatedModule& replica)
        : replica_(&replica), previous_(replica.set_synchronized(false)) {}
    NoSync(NoSync&& other) noexcept
        : replica_(std::exchange(other.replica_, nullptr)), previous_(other.previous_) {}
    NoSync& operator=(NoSync&&) = delete;
    ~NoSync() {
      if (replica_) replica_->set_synchronized(previous_);
    }

   private:
    ddp::ReplicatedModule* replica_;
    bool previous_;
  };
  /// See NoSync.
  [[nodiscard]] NoSync no_sync() { return NoSync(replica_); }

  /// The module.
  M& module() const { return *module_; }
  /// Its parameters, for an optimizer.
  std::vector<Tensor> parameters() const { return module_->parameters(); }
  /// Buckets and times of the last synchronised backward.
  const ddp::Reducer& reducer() const { return replica_.reducer(); }

 private:
  nn::ModulePtr<M> module_;
  ddp::ReplicatedModule replica_;
};

}  // namespace lockstep
