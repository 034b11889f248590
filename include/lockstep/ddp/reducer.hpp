#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/leaf.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/ddp/trace.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Averages gradients over ranks while backward runs.

namespace lockstep::ddp {

/// A parameter and its name, for messages.
using NamedParameter = std::pair<std::string, Tensor>;

/// Options of a Reducer; names and defaults are those of PyTorch's DistributedDataParallel.
struct ReducerOptions {
  BucketCaps bucket_caps = {};
  /// Some parameters may take no part in a backward: they are found by a walk over the graph. A
  /// gradient that no rank has stays untouched; one that only some ranks have counts as zero on the
  /// others. Without it, such a parameter is an error.
  bool find_unused_parameters = false;
};

/// Gives each parameter's gradient its place in a bucket (a gradient sink: backward writes straight
/// into it) and starts a bucket's all-reduce as soon as all its gradients are final, in the same
/// order on every rank. At the end of the first backward the buckets are laid out again in the
/// order in which rank 0's gradients became ready.
///
/// One thread at a time; all ranks must make the same calls.
class Reducer {
 public:
  /// Takes over the gradients of all parameters.
  /// @param parameters leaves that require a gradient, the same on every rank.
  /// @throws InvalidArgument if they differ between ranks (names the first that does), lie on
  /// another device than the group, or are no leaves.
  Reducer(std::vector<NamedParameter> parameters, comm::CommunicatorPtr group,
          ReducerOptions options = {});
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  /// Waits for what is under way and gives the gradients back.
  ~Reducer();

  /// What the backward that follows a forward does with the gradients.
  enum class Mode : unsigned char { idle, accumulate, reduce };

  /// Announces a backward: called after each recorded forward.
  /// @param outputs what the forward returned; read only to find unused parameters.
  /// @throws InvalidArgument if a parameter was replaced since the construction.
  void prepare(Mode mode, std::span<const Tensor> outputs);

  /// Opens or closes a scope of accumulation. Inside one, backwards may follow a forward as often
  /// as they like; outside, only those may still accumulate that were announced and have not run.
  void set_accumulation_scope(bool open) noexcept;

  /// Times of the last synchronised backward.
  const ReducerTrace& trace() const noexcept { return trace_; }
  /// The buckets in use, in launch order.
  const std::vector<Bucket>& buckets() const noexcept { return plan_; }
  /// True once the buckets follow the measured order.
  bool rebuilt() const noexcept { return rebuilt_; }

 private:
  struct BucketState {
    Tensor array;
    std::string label;
    std::size_t waiting = 0;
    bool launched = false;
    comm::Work work;
  };

  void build(std::span<const std::size_t> ready_order);
  void rebuild_in_measured_order();
  void check_not_replaced() const;
  void find_unused(std::span<const Tensor> outputs);
  void begin_accumulation();
  void close_accumulation() noexcept;
  void begin_backward();
  void on_gradient(std::size_t index);
  void mark_ready(std::size_t index);
  void launch_ready_buckets();
  void launch(std::size_t number);
  void finish_backward();
  void check_all_ready();
  std::vector<std::int32_t> reduce_used_map();
  void settle_gradients(std::span<const std::int32_t> users);
  std::string names_of(std::span<const std::size_t> indices) const;

  std::vector<NamedParameter> parameters_;
  std::vector<IntrusivePtr<autograd::LeafNode>> leaves_;
  std::vector<std::uint64_t> hooks_;
  comm::CommunicatorPtr group_;
  ReducerOptions options_;

  std::vector<Bucket> plan_;
  std::vector<BucketState> buckets_;
  std::vector<std::size_t> bucket_of_;

  Mode mode_ = Mode::idle;
  bool accumulation_scope_ = false;
  bool accumulating_ = false;        // inside a backward that only accumulates
  std::size_t accumulations_ = 0;    // backwards announced to accumulate that have not run
  bool running_ = false;             // inside a synchronised backward
  std::size_t next_bucket_ = 0;      // the first that is not launched
  std::vector<std::size_t> unused_;  // parameters that the last forward did not use
  std::vector<bool> ready_;
  std::vector<std::size_t> ready_order_;
  bool rebuilt_ = false;
  ReducerTrace trace_;
};

}  // namespace lockstep::ddp
