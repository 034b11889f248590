#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/graph_tag.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/nn/module.hpp"
#include "lockstep/nn/module_ptr.hpp"
#include "lockstep/parallel/reducer.hpp"

/// @file
/// Data-parallel training of a module.

namespace lockstep {

/// How DistributedDataParallel adds up gradients.
enum class GradientReduction : unsigned char {
  standard,      ///< each rank its own, as they come, then over the ranks
  reproducible,  ///< along a tree over micro-batches: the same bits on 1, 2, 4, ... ranks
};

/// Options of DistributedDataParallel; names and defaults are PyTorch's.
struct DistributedDataParallelOptions {
  /// Gradients are reduced in buckets of about this many bytes; the last bucket to become ready is
  /// smaller (`first_bucket_bytes`, as PyTorch calls it).
  std::size_t bucket_bytes = parallel::BucketCaps{}.bytes;
  std::size_t first_bucket_bytes = parallel::BucketCaps{}.last_bytes;
  /// Who decides where buckets end: sizes, or the times of the first steps; see
  /// parallel::ReducerOptions.
  parallel::BucketPlanning bucket_plan = parallel::BucketPlanning::pytorch;
  /// Parameters may take no part in a backward; see parallel::ReducerOptions.
  bool find_unused_parameters = false;
  /// Each step uses the same parameters, though not all; see parallel::ReducerOptions.
  bool static_graph = false;
  /// How much of training the ranks share out (ZeRO): 1, the optimizer's states, 2, averaged
  /// gradients too, 3, parameters too, which are whole only while modules use them. Then
  /// `parameters` are this rank's shards; see there.
  int zero_stage = 0;
  /// Buckets are registered with the group's library, which then need not copy them; see
  /// parallel::ReducerOptions.
  bool register_buckets = false;
  /// Every step's first training forward starts with rank 0's buffers (running statistics).
  bool broadcast_buffers = true;
  /// Whether averages have the same bits for any number of ranks and any buckets; see
  /// parallel::ReducerOptions for what that asks of the program. Refused by name where it cannot be
  /// held: with a `zero_stage`, communication hooks, LocalSGD and DiLoCo, modules with batch norm,
  /// and what ReducerOptions::micro_batches says.
  GradientReduction reduction = GradientReduction::standard;
  /// Of a step over all ranks where the reduction is reproducible: a power of two, the same for all
  /// numbers of ranks.
  int micro_batches = 0;
};

namespace parallel {
class GatheredParameters;
}

namespace nn {

/// A forward through a replica, until its end of scope.
class ForwardScope {
 public:
  /// Begins it. @throws as Reducer::record_forward.
  ForwardScope(parallel::Reducer& reducer, parallel::Reducer::Mode mode);
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;
  ~ForwardScope();

 private:
  autograd::TagGuard tag_;
  parallel::StepTimes::Scope times_;
  parallel::GatheredParameters* gathered_;
};

/// All parameters of a replica, on every rank, until its end of life; see
/// DistributedDataParallel::whole_parameters.
class WholeParameters {
 public:
  /// @param gathered null if they are whole anyway.
  explicit WholeParameters(parallel::GatheredParameters* gathered);
  WholeParameters(WholeParameters&&) noexcept = default;
  WholeParameters& operator=(WholeParameters&&) = delete;
  ~WholeParameters();

 private:
  std::weak_ptr<parallel::GatheredParameters*> gathered_;  // the replica may end first
};

/// What DistributedDataParallel does that does not depend on the module's type.
class ReplicatedModule {
 public:
  /// Compares the module between the ranks, gives all of them rank 0's values, and takes over the
  /// gradients. @throws as Reducer.
  ReplicatedModule(nn::ModulePtr<nn::Module> module, comm::CommunicatorPtr group,
                   DistributedDataParallelOptions options);
  ReplicatedModule(const ReplicatedModule&) = delete;
  ReplicatedModule& operator=(const ReplicatedModule&) = delete;
  /// Takes its hooks away.
  ~ReplicatedModule();

  /// Begins a forward, which ends with the scope: checks that no parameter was replaced, and sends
  /// buffers. @throws as Reducer::record_forward.
  [[nodiscard]] ForwardScope record_forward();
  /// The backwards of later forwards only accumulate while any handle that this gave lives.
  std::shared_ptr<const void> stop_synchronizing() const noexcept { return stop_; }
  /// See DistributedDataParallel::backward.
  void backward(const Tensor& loss, const Tensor& weight) { reducer_->backward(loss, weight); }
  /// The same for a number.
  void backward(const Tensor& loss, double weight);
  /// See DistributedDataParallel::backward_without_data.
  bool backward_without_data();
  /// See DistributedDataParallel::register_comm_hook.
  void register_comm_hook(std::shared_ptr<parallel::BucketReduction> hook);
  /// For what averages parameters in the place of gradients, such as LocalSGD: from now on a
  /// backward leaves this rank's own gradients, and nothing of a step is compared between the
  /// ranks. Blocks; every rank must call it, between steps.
  /// @param averaging its name. @param life when it ends, no forward can be trained through any
  /// more. @param begin called once, in the first forward that is recorded, on every rank.
  /// @throws InvalidArgument on every rank if ranks share out parameters, have a
  /// communication hook, or keep their gradients already.
  void keep_gradients(std::string averaging, std::weak_ptr<const void> life,
                      std::function<void()> begin = {});
  /// Throws where `keep_gradients` would.
  void check_may_keep_gradients(const std::string& averaging) const;
  /// Whether it does: replicas differ between averages.
  bool keeps_gradients() const noexcept { return !averaging_.empty(); }
  /// What keeps something from step to step beside the module and its optimizer, to be saved by
  /// itself: a communication hook, or what averages parameters.
  struct Beside {
    std::string name;      ///< empty: nothing does
    const void* object{};  ///< checkpoint::TensorState::object of its state
  };
  /// Which of these there is.
  Beside keeps_beside() const;
  /// Whether there are gradients of backwards under no_sync() that no reduction has taken in yet.
  bool has_accumulated() const;
  /// Puts the replica between the micro-batches that left this; the next forward goes on with the
  /// step. @throws as Reducer::set_accumulated.
  void set_accumulated(const parallel::Accumulated& accumulated);
  /// Drops what has added up, if anything: the next forward begins a step.
  void drop_accumulated();
  /// See DistributedDataParallel::send_buffers.
  void send_buffers();
  /// Whether steps start with rank 0's buffers: else each rank has its own.
  bool broadcasts_buffers() const noexcept { return options_.broadcast_buffers; }
  /// The ranks that train replicas of it.
  const CommunicatorPtr& group() const noexcept { return group_; }
  /// The module.
  const nn::Module& module() const noexcept { return *module_; }
  /// Those of its parameters that train.
  NamedTensors trained_parameters() const;
  /// See DistributedDataParallel::named_parameters.
  NamedTensors named_parameters(const std::string& prefix = {}) const;
  /// The same without names.
  std::vector<Tensor> parameters() const;
  /// See DistributedDataParallel::shard_group.
  CommunicatorPtr shard_group() const { return reducer_->shards() ? group_ : nullptr; }
  /// See DistributedDataParallel::gather_optimizer_state.
  NamedTensors gather_optimizer_state(const NamedTensors& state) const;
  /// See DistributedDataParallel::shard_optimizer_state.
  NamedTensors shard_optimizer_state(const NamedTensors& state) const;
  /// See DistributedDataParallel::whole_parameters.
  WholeParameters whole_parameters() const;
  /// The reducer, for its trace and buckets.
  const parallel::Reducer& reducer() const noexcept { return *reducer_; }
  /// See DistributedDataParallel::stragglers.
  parallel::StragglerReport stragglers() { return reducer_->stragglers(); }

 private:
  bool only_accumulates() const noexcept { return stop_.use_count() > 1; }
  void check_names_of_state(const NamedTensors& state, bool with_parts) const;
  bool begins_step();
  bool may_send_buffers() const;
  void leave_step_as_captured();
  void check_same_tensors() const;
  void tell_of_modules();
  void check_reproducible();
  std::unique_ptr<parallel::Reducer> make_reducer(
      const comm::CommunicatorPtr& group, std::shared_ptr<parallel::BucketReduction> reduction,
      const std::string& averaging = {}) const;

  nn::ModulePtr<nn::Module> module_;
  comm::CommunicatorPtr group_;
  DistributedDataParallelOptions options_;
  std::vector<parallel::NamedParameter> parameters_;
  std::vector<bool> trained_;  // which of them require a gradient
  std::unique_ptr<parallel::Reducer> reducer_;
  std::vector<std::pair<IntrusivePtr<nn::Module>, std::uint64_t>> hooks_;  // by which modules tell
  std::shared_ptr<const int> stop_ = std::make_shared<int>();  // held by who stops synchronizing
  bool has_hook_ = false;
  bool begins_step_ = true;         // the next forward
  std::string averaging_;           // what averages parameters in the place of gradients
  std::weak_ptr<const void> life_;  // its
  std::function<void()> begin_;     // what it does in the first forward; then empty
};

}  // namespace nn

/// Trains one replica of a module per rank: after each backward all ranks hold the average of their
/// gradients, so the same optimizer step keeps the replicas equal. The all-reduce runs while
/// backward goes on. Call this object instead of the module, with outputs of any type; a backward
/// that goes through no such call is refused.
///
/// A forward or backward that is refused before it begins loses nothing on this rank, but a rank
/// that catches that and goes on lets the others wait for the group's timeout.
///
/// All ranks must make the same calls. Each forward outside no_sync() is a step, which its backward
/// names to the other ranks: a rank that leaves one out, or makes one more, is refused on all. So
/// evaluate under a NoGradGuard, or on all ranks.
///
/// A parameter's gradient is a view of a bucket, as with PyTorch's gradient_as_bucket_view = true:
/// a handle of it that is kept over zero_grad() sees the next backward's values. clone() what must
/// stay. A backward through a forward of a wrapper that has ended is refused.
///
/// Wrapping a module again supersedes the wrapper that it has: the new one takes the gradients
/// over, and the former throws when it is called.
///
/// Average means the mean over ranks of each rank's own gradient: ranks that see batches of
/// different size call `backward(loss, weight)`.
template <class M>
class DistributedDataParallel {
 public:
  using Options = DistributedDataParallelOptions;

  /// Makes all replicas equal to rank 0's. @param module on the group's device, in its final dtype,
  /// with parameters that shall not train frozen. @throws comm::Mismatch naming the first parameter
  /// that differs between ranks, InvalidArgument naming an option that does, or for a module none
  /// of whose parameters requires a gradient.
  DistributedDataParallel(nn::ModulePtr<M> module, comm::CommunicatorPtr group,
                          const Options& options = {})
      : module_(std::move(module)), replica_(module_, std::move(group), options) {}
  DistributedDataParallel(const DistributedDataParallel&) = delete;  // guards refer to it
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  /// Calls the module, its hooks included.
  template <class... Args>
  auto operator()(Args&&... args) {
    const nn::ForwardScope scope = replica_.record_forward();
    return module_(std::forward<Args>(args)...);
  }

  /// Backwards of the forwards made until the guard ends only accumulate on this rank; the first of
  /// a later forward reduces all. Saves communication between micro-batches.
  class NoSync {
   public:
    /// Stops synchronising.
    explicit NoSync(nn::ReplicatedModule& replica) : stop_(replica.stop_synchronizing()) {}
    NoSync(NoSync&&) noexcept = default;
    NoSync& operator=(NoSync&&) = delete;
    ~NoSync() = default;

   private:
    std::shared_ptr<const void> stop_;  // the wrapper may end first
  };
  /// See NoSync.
  [[nodiscard]] NoSync no_sync() { return NoSync(replica_); }

  /// `loss.backward()` for ranks, and micro-batches, of different size: gradients become the mean
  /// of those of all, each times its weight, over the sum of the weights. With the number of
  /// samples or tokens that a loss is the mean of as its weight, they are those of one process on
  /// all of them.
  ///
  ///     const Tensor loss = cross_entropy(ddp(batch.x), batch.target);
  ///     ddp.backward(loss, batch.x.size(0));
  ///
  /// All ranks must give weights, or none; so all backwards of a step, those under no_sync()
  /// included. One all-reduce of a number comes before backward; after accumulation gradients take
  /// one more pass. The weight is multiplied in the dtype of the loss.
  /// @param loss one element, a mean over what the weight counts. @param weight not negative; in a
  /// captured step that of every launch. @throws InvalidArgument for a weight that is negative or
  /// not finite, and where weights are missing on this rank's side, and what backward does.
  void backward(const Tensor& loss, double weight) { replica_.backward(loss, weight); }
  /// The same with a weight on the device, for which the host does not wait.
  /// @param weight one element of any dtype on the group's device, not negative: this is not
  /// checked.
  void backward(const Tensor& loss, const Tensor& weight) { replica_.backward(loss, weight); }
  /// In the place of a forward and a backward with a weight, for a rank that has no data while
  /// others may: gradients become those of the others, and the rank updates as they do.
  ///
  ///     for (auto batch = loader.begin();;) {
  ///       if (batch != loader.end()) {
  ///         ddp.backward(cross_entropy(ddp(batch->images), batch->labels), batch->labels.numel());
  ///         ++batch;
  ///       } else if (!ddp.backward_without_data()) {
  ///         break;
  ///       }
  ///       optimizer.step();
  ///       optimizer.zero_grad();
  ///     }
  ///
  /// Takes the place of one forward: the others must make one a step. Not with zero_stage 3, whose
  /// forwards gather parameters over all ranks, nor for models that communicate in forward, such as
  /// those with a SyncBatchNorm, which is refused by name: there a forward of a batch of 0 rows and
  /// `backward(loss, 0)` do it. With a GradScaler, let it scale a zero: ranks
  /// tell each other that they have scaled their losses. Waits for the device.
  /// @return false if no rank had any data, on all of them: then there are no gradients, and
  /// nothing is left to do. A batch that counts nothing (a weight of 0) is data: all ranks update.
  /// @throws InvalidArgument under no_sync() or NoGradGuard.
  bool backward_without_data() { return replica_.backward_without_data(); }

  /// Gives all ranks the buffers of rank 0, such as running statistics, with which a step begins,
  /// too: between steps those of each rank are its own. Call it before an evaluation whose results
  /// are compared or shared; train::Step::evaluation does. Nothing happens without
  /// `broadcast_buffers`, and where replicas are averaged now and then (LocalSGD). Blocks; every
  /// rank must call it, between steps.
  void send_buffers() { replica_.send_buffers(); }

  /// Averages gradients in another way from now on: compressed ones, of low rank, or as the caller
  /// likes. Blocks; every rank must call it, outside of a backward.
  /// @param hook such as parallel::compress_buckets(DType::bf16) or a parallel::PowerSgd, the same
  /// on every rank. @throws InvalidArgument on every rank if the ranks give different ones.
  void register_comm_hook(std::shared_ptr<parallel::BucketReduction> hook) {
    replica_.register_comm_hook(std::move(hook));
  }
  /// The same with a function.
  /// @param name compared between the ranks. @param exchange a coroutine that leaves in
  /// `bucket.buffer()` what shall be the gradients, as BucketReduction::exchange says.
  void register_comm_hook(
      std::string name,
      std::function<parallel::BucketExchange(parallel::GradBucket& bucket)> exchange) {
    register_comm_hook(parallel::reduce_buckets_by(std::move(name), std::move(exchange)));
  }

  /// What does not depend on the module's type.
  nn::ReplicatedModule& replica() { return replica_; }
  /// The module.
  M& module() const { return *module_; }
  /// Its parameters under their names, for an optimizer: its state is saved and loaded by them.
  ///
  /// With a `zero_stage` this rank's shards (parallel::ParameterShards) in the place of those that
  /// train; frozen ones stay among them, as they are. Give
  /// `shard_group` to what needs all gradients: clip_grad_norm_, GradScaler, LARS and LAMB. The
  /// module's own parameters have all values (stage 3: under `whole_parameters`), but no gradients.
  /// A step without zero_grad, or of an optimizer of these, is refused by the next backward.
  /// @param prefix as for Module::named_parameters, for an optimizer of several wrappers.
  NamedTensors named_parameters(const std::string& prefix = {}) const {
    return replica_.named_parameters(prefix);
  }
  /// The same without names.
  std::vector<Tensor> parameters() const { return replica_.parameters(); }
  /// The ranks that share out the parameters for their updates; null without a `zero_stage`.
  CommunicatorPtr shard_group() const { return replica_.shard_group(); }
  /// State dict of an optimizer of these parameters as it would be without a `zero_stage`, on every
  /// rank. Blocks; every rank must call it. @throws InvalidArgument for an optimizer that has other
  /// names for them, or none; so does the next.
  NamedTensors gather_optimizer_state(const NamedTensors& state) const {
    return replica_.gather_optimizer_state(state);
  }
  /// What of such a state dict this rank's optimizer loads, whatever the number of ranks was that
  /// it was saved on.
  NamedTensors shard_optimizer_state(const NamedTensors& state) const {
    return replica_.shard_optimizer_state(state);
  }
  /// With zero_stage 3 gathers all parameters on every rank until the end of the scope, for what is
  /// no forward through the wrapper: a state dict, averages of weights, a check of replicas,
  /// evaluation of the module itself. What is written to them there, as by load_state_dict, is
  /// taken over into the shards; every rank must write the same. Averages that a WeightAverage has
  /// put there are not, but what it keeps aside. In other stages they are whole anyway, and what
  /// was written to shards by hand reaches all ranks here. Blocks; every rank must call it, outside
  /// of a backward. An update meanwhile is refused. If the wrapper ends first, the parameters stay
  /// whole, and the module goes on without.
  ///
  ///     {
  ///       const auto whole = ddp.whole_parameters();
  ///       if (session.is_main()) io::save_safetensors(path, ddp.module().state_dict());
  ///     }
  [[nodiscard]] nn::WholeParameters whole_parameters() const { return replica_.whole_parameters(); }
  /// How much of the last synchronised backward's communication it hid, and what was predicted.
  parallel::CommunicationReport report() const { return reducer().report(); }
  /// Which rank the others waited for in the last 64 steps. Blocks; every rank must call it.
  parallel::StragglerReport stragglers() { return replica_.stragglers(); }
  /// Buckets and times of the last synchronised backward.
  const parallel::Reducer& reducer() const { return replica_.reducer(); }

 private:
  nn::ModulePtr<M> module_;
  nn::ReplicatedModule replica_;
};

}  // namespace lockstep
