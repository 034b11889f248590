#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/leaf.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/parallel/bucket_plan.hpp"
#include "lockstep/parallel/bucket_reduction.hpp"
#include "lockstep/parallel/communication_report.hpp"
#include "lockstep/parallel/parameter_shards.hpp"
#include "lockstep/parallel/stragglers.hpp"
#include "lockstep/parallel/trace_recorder.hpp"
#include "lockstep/parallel/update_log.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Averages gradients over ranks while backward runs.

namespace lockstep::comm {
class Registration;
}

namespace lockstep::parallel {

/// A parameter and its name, for messages.
using NamedParameter = std::pair<std::string, Tensor>;

class BucketPlanner;
class MicroBatchTree;

/// Options of a Reducer; names and defaults are those of PyTorch's DistributedDataParallel.
struct ReducerOptions {
  BucketCaps bucket_caps = {};
  /// `measured`: the second and third synchronised backward are measured, then buckets are laid out
  /// once more, and never again, by cut_for_earliest_end. In these two a number is all-reduced
  /// before each bucket; at the end of the third the times are, and rank 0 sends the plan. Steps
  /// can be captured after that. What a communication hook computes before it communicates counts
  /// to the cost of its bucket. A rank without data has no say in when gradients are ready.
  ///
  /// Over NCCL, which adds in an order that depends on an element's place in its bucket, results
  /// then differ in their last bits from run to run; on hosts they do not.
  /// @throws InvalidArgument for reductions that share out, whose buckets stay, and with
  /// `find_unused_parameters` without `static_graph`: gradients are ready in another order then.
  BucketPlanning bucket_plan = BucketPlanning::pytorch;
  /// Some parameters may take no part in a backward. A gradient that no rank has stays untouched;
  /// one that only some ranks have counts as zero on the others. Without it, such a parameter is an
  /// error.
  bool find_unused_parameters = false;
  /// Each step uses the parameters that the first one did, on each rank its own, however often: the
  /// first backward finds the unused ones, as with `find_unused_parameters`, which has no effect
  /// beside it; later ones neither walk the graph nor ask the other ranks, and refuse a change. A
  /// rank without data has zeros for what it uses.
  bool static_graph = false;
  /// What is done with a bucket, the same on every rank.
  std::shared_ptr<BucketReduction> reduction = all_reduce_buckets();
  /// For reductions that share out: parameters are, too, for their updates; see `shards`.
  bool shares_parameters = false;
  /// With `shares_parameters`: these have memory only while a forward or backward uses them. Not
  /// with `find_unused_parameters` and `static_graph`, as ranks must use, and gather, the same.
  bool gathers_parameters = false;
  /// For reductions that share out: a bucket has memory from its first gradient on, until it is
  /// reduced. Backward waits where it is more than two buckets ahead of the reductions.
  bool frees_buckets = false;
  /// Buckets, and averages that are shared out, are registered with the group as they are laid out
  /// (comm::register_memory): over NCCL these blocks, and each begins on a page of its own; over
  /// other backends it does nothing. No bits depend on it. Buckets that come and go within a step
  /// (`frees_buckets`) are not: the device would have to be waited for before each goes.
  bool registers_buckets = false;
  /// Above 0, averages are reproducible: the same bits for 1, 2, 4, ... ranks and any buckets. They
  /// are then the sum over this many micro-batches, the same number for all numbers of ranks, along
  /// a fixed binary tree, divided once by their number, or by the sum of their weights, which is
  /// taken along the same tree. Of n ranks each makes `micro_batches` / n backwards a step, all but
  /// the last through forwards marked `accumulate`; rank r has micro-batches r * `micro_batches` /
  /// n on. Between them parameters have no gradient: the sums are elsewhere. A forward is followed
  /// by its backward before the next micro-batch's; it draws random numbers by the number of its
  /// micro-batch from the calling thread's generator, which all ranks have seeded alike. What a
  /// forward and a backward compute must itself depend on the micro-batch alone.
  /// @throws InvalidArgument, on all ranks alike, unless it is a power of two and so is the number
  /// of ranks; for other reductions than the default one, groups on GPUs or with another backend
  /// than those of hosts, parameters that are neither f32 nor f64. @throws comm::Mismatch for
  /// generators that differ. A backward too many or too few, or one that finds gradients from
  /// before its step, is refused, and so are captured steps and `reduce_without_backward`.
  int micro_batches = 0;
  /// What averages parameters in the place of gradients, such as LocalSGD, if anything does: ranks
  /// differ between its averages. For messages.
  std::string averaging = {};
};

/// What backwards through forwards marked `accumulate` have added up on a rank.
struct Accumulated {
  std::vector<Tensor> gradients;  ///< of each parameter; undefined where there is none
  /// Of backwards with weights, else undefined: their sum, and what gradients are to be multiplied
  /// by to be those of the weighted losses; f64 scalars.
  Tensor weight, unit;
};

/// Gives each parameter's gradient its place in a bucket (it is the *sink* of the leaves: backward
/// writes straight into it) and starts a bucket's reduction as soon as all its gradients are
/// final, hooks of the user included, in the same order on every rank. At the end of the first
/// backward the buckets are laid out again in the order in which rank 0's gradients became ready,
/// unless averages are shared out.
///
/// Where the reduction leaves all averages on every rank, they are the gradients of the parameters
/// afterwards. Where it shares them out, parameters have no gradient afterwards, this rank's part
/// of each bucket is in `averages`, and the next backward that reduces replaces it.
///
/// Every collective says which reducer and which step it belongs to, so that a rank that left out a
/// backward is refused on all ranks rather than paired with the others' last one. Steps are the
/// forwards recorded to be reduced.
///
/// The first collective of a step also carries what optimizers said of their updates since the step
/// before: which parameters, and which update it is, with which learning rates and options, must be
/// the same on all ranks. When the reducer or the Session ends, each rank declares its last ones; a
/// Session ends the job where they differ. A rank on which an exception unwinds through the reducer
/// declares nothing.
///
/// It also carries which gradients of before this step are still there and are added to: a rank
/// that alone leaves out `zero_grad` is refused.
///
/// An optimizer's step is refused while one of its parameters has what backwards only accumulated:
/// replicas would become different, or, where averages are shared out or are those of
/// micro-batches, the step would leave it out. A rank alone may update by it.
///
/// In a step that is captured, each launch counts as its forwards, and names its collectives anew.
///
/// A backward to reduce that throws, at whatever point, fails the group: the other ranks would wait
/// for buckets that do not come. One that is refused before it begins (its graph was freed) does
/// not.
///
/// A backward through a forward whose reducer has ended is refused, unless it was to accumulate.
///
/// A leaf has one sink. A reducer whose leaf is taken by another is superseded: it gives the rest
/// back when it ends, and until then refuses to record a forward or to reduce.
///
/// One thread at a time; all ranks must make the same calls.
class Reducer final : private autograd::GradientSink {
 public:
  /// Takes over the gradients of all parameters, from another reducer too.
  /// @param parameters leaves that require a gradient, the same on every rank.
  /// @throws InvalidArgument if they differ between ranks (names the first that does), lie on
  /// another device than the group, or are no leaves.
  Reducer(std::vector<NamedParameter> parameters, comm::CommunicatorPtr group,
          ReducerOptions options = {});
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  /// Waits for what is under way and gives the gradients back. Inside a backward that it reduces,
  /// it fails the group, because the other ranks wait for buckets that do not come.
  ~Reducer();

  /// What a backward through a forward does with the gradients.
  enum class Mode : unsigned char { accumulate, reduce };

  /// Marks the forward that is recorded until the end of the scope. A backward that goes through
  /// any forward marked `reduce` reduces; through `accumulate` alone, it adds up on this rank;
  /// through none, it is refused.
  /// @throws InvalidArgument if a parameter was replaced or frozen since the construction, a
  /// backward has failed, or another reducer has taken over.
  [[nodiscard]] autograd::TagGuard record_forward(Mode mode);
  /// What tells collectives of the next forward from those of other forwards and reducers, the same
  /// on all ranks that make the same calls.
  comm::CollectiveId next_forward() const { return {.owner = number_, .step = forwards_ + 1}; }
  /// Throws as `record_forward` would.
  void check_usable() const;

  /// `loss.backward()`, whose gradients count by a weight: a backward that reduces leaves the mean
  /// of the gradients of all ranks, and of all that they accumulated since the last one, each times
  /// its weight, over the sum of the weights. Costs an all-reduce of that sum before backward, and
  /// after accumulation a pass over the gradients.
  /// @param loss one element, a mean over what the weight counts. @param weight one element of any
  /// dtype on the group's device, not negative; on a GPU the host does not wait for it.
  /// @throws InvalidArgument for other shapes or devices, and where backwards with and without a
  /// weight would be mixed, and what the backward does.
  void backward(const Tensor& loss, const Tensor& weight);
  /// The same for a number, which the host knows: with fewer launches. In a captured step it is
  /// that of every launch.
  void backward(const Tensor& loss, double weight);
  /// Takes part in a reduction in the place of a forward, marked `reduce`, and its backward: of
  /// weight 0, with what was accumulated. The others call `backward` with their weights. Waits for
  /// the sum of these.
  /// @return false if the weights of all ranks are 0; there are no gradients then.
  bool reduce_without_backward();

  /// Whether backwards that accumulate have left gradients since the last reduction.
  bool has_accumulated() const;
  /// What a step has so far. @throws InvalidArgument between the micro-batches of a reproducible
  /// reduction, whose partial sums belong to this number of ranks.
  Accumulated accumulated() const;
  /// Replaces it. @throws InvalidArgument for tensors that do not fit, and inside a backward.
  void set_accumulated(const Accumulated& accumulated);
  /// Drops it, if there is any.
  void drop_accumulated();

  /// Exchanges what is done with a bucket. Blocks; every rank must call it, outside of a backward.
  /// @param reduction the same on every rank, and no other reducer's if it keeps something.
  /// @throws InvalidArgument on every rank if the names differ between ranks; for one that shares
  /// out, or in the place of one that does, for one that keeps something for another reducer, and
  /// inside a backward.
  void set_reduction(std::shared_ptr<BucketReduction> reduction);
  /// What averages the gradients.
  const BucketReduction& reduction() const noexcept { return *options_.reduction; }

  /// How much of the last synchronised backward's communication it hid, and what was predicted;
  /// without buckets where these have been laid out again since. Waits for it as `trace` does.
  CommunicationReport report() const;
  /// Which rank the others waited for in the last backwards that reduced, at most
  /// StepTimes::most_steps; those of captured steps, and the last one, are not among them. Blocks;
  /// every rank must call it.
  StragglerReport stragglers() { return step_times_->compare(*group_); }
  /// Where the times of collectives of forwards and backwards are noted; null in a captured step.
  std::shared_ptr<StepTimes> step_times() const { return is_captured() ? nullptr : step_times_; }
  /// Times of the last synchronised backward. Waits for it where a GPU is still at it.
  ReducerTrace trace() const { return recorder_.trace(); }
  /// The buckets in use, in launch order.
  const std::vector<Bucket>& buckets() const noexcept { return plan_; }
  /// What this rank keeps of a bucket after a synchronised backward: the whole array, or its part.
  const Tensor& averages(std::size_t bucket) const { return buckets_.at(bucket).averages; }
  /// What optimizers update in the place of the parameters; null unless those are shared out.
  const ParameterShards* shards() const noexcept { return shards_.get(); }
  /// See ParameterShards::share_writes.
  void share_writes() {
    if (shards_) shards_->share_writes();
  }
  /// What brings parameters that are gathered when they are used; null unless they are.
  GatheredParameters* gathered() const;
  /// True once the buckets follow the measured order.
  bool rebuilt() const noexcept { return rebuilt_; }

 private:
  struct BucketState {
    Tensor array;
    Tensor averages;         // the array, or another for this rank's part
    std::string label;       // with some of the names of its parameters
    std::string full_label;  // of its collectives: with all, or many
    std::size_t waiting = 0;
    std::unique_ptr<GradBucket> gradients;
    BucketExchange exchange;
    std::size_t parts_run = 0;      // of the exchange, in this backward
    std::size_t parts = 0;          // in the last one
    std::vector<comm::Work> works;  // of the exchange
  };

  Tensor memory_for(std::size_t index) override;
  void on_final(std::size_t index) override;
  void check_update(std::size_t index) const override;
  void on_clip(std::size_t index, std::string_view how) override;
  void on_update(std::size_t index, std::string_view how) override;
  void before_change(std::size_t index, const Tensor& value) override;
  void on_clear(std::size_t index) noexcept override {
    is_cleared_ = true;
    // Where it is filled with zeros no memory is asked for. Shards count in another way.
    if (!options_.shares_parameters) begun_[index] = true;
  }
  void on_taken(std::size_t index) noexcept override;
  autograd::GradientShare share(std::size_t) const override {
    return shards_ ? autograd::GradientShare::none : autograd::GradientShare::whole;
  }
  bool is_averaged() const override { return group_->size() > 1 && options_.averaging.empty(); }
  std::string why_ranks_differ() const override;

  std::vector<ParameterInfo> parameter_infos() const;
  std::vector<Bucket> plan_by_sizes(std::span<const std::size_t> ready_order) const;
  void build(std::vector<Bucket> plan);
  BucketState make_bucket(const Bucket& plan, std::size_t number) const;
  bool registers_arrays() const;
  Tensor zeros_in_bucket(std::int64_t count, const Bucket& plan) const;
  void register_arrays();
  void end_registration() noexcept;
  void wait_for_collectives() noexcept;
  void make_array(std::size_t number);
  bool is_from_outside(std::size_t number) const;
  void free_array(std::size_t number);
  void set_array(std::size_t number, Tensor array);
  void forget_array(std::size_t number);
  void bring_back_if_abandoned(std::size_t number);
  std::vector<Tensor> averages_of_buckets() const;
  std::unique_ptr<GradBucket> gradients_of(std::size_t number, const BucketState& bucket);
  bool shares_out() const { return options_.reduction->shares_out(); }
  void take_for_this(BucketReduction& reduction) const;
  bool has_reduction(const BucketReduction& reduction) const;
  void use_on_current_stream(const Tensor& array) const;
  void declare_last_updates() noexcept;
  void give_back() noexcept;
  std::function<bool()> uses_in_backward() const;
  void hear_of_accumulations();
  void begin_accumulation();
  void gather_in_backward();
  void rebuild_in_measured_order();
  void plan_by_measurements();
  HiddenCommunication predicted_hidden() const;
  void begin_backward();
  void mark_unused();
  void check_takes_part_as_before(std::size_t index) const;
  void note_kept_gradients();
  void reset_backward();
  void use_micro_batch_tree();
  void check_micro_batch(bool reduces) const;
  void begin_micro_batch();
  void finish_micro_batch();
  bool contributes(std::size_t index) const;
  bool is_local(std::size_t index) const;
  void leave_local_as_captured();
  bool has_contributions() const;
  void check_weights_fit(bool is_weighted);
  void join_recording_with_weights();
  class Weighing;
  bool join_weights();
  void keep_weight();
  void exchange_in_common_unit();
  bool leave_out_empty_step();
  void clear_gradients_of_step() noexcept;
  void backward(const Tensor& loss, const Tensor& weight, double known);
  void share_weights();
  void forget_weights() noexcept;
  void scale_by_weights(const Tensor& array) const;
  void mark_ready(std::size_t index);
  void launch_ready_buckets();
  void launch(std::size_t number);
  void go_on_early(std::size_t number);
  void go_on(BucketState& bucket);
  comm::Work start_collective(std::size_t bucket, std::size_t number, std::size_t bytes,
                              FunctionRef<comm::Work(const comm::CollectiveOptions&)> collective);
  std::string label_of(std::size_t bucket, std::size_t collective);
  bool is_captured() const;
  void note_time(const comm::Work& work);
  void finish_backward();
  void wait_for_buckets();
  void fail_backward(const std::string& reason) noexcept;
  void check_all_ready();
  comm::CollectiveId id_of(std::size_t part, std::size_t collective = 0) const;
  void find_users();
  void tell_of_unused();
  std::vector<std::int32_t> sum_over_ranks(const std::vector<bool>& used) const;
  void take_over_results();

  std::vector<NamedParameter> parameters_;
  std::vector<IntrusivePtr<autograd::LeafNode>> leaves_;
  comm::CommunicatorPtr group_;
  ReducerOptions options_;
  std::shared_ptr<MicroBatchTree> tree_;  // the reduction, if that is reproducible
  std::uint64_t number_ = 0;              // the same on all ranks, and this reducer's alone
  autograd::GraphTag accumulate_tag_, reduce_tag_;
  std::shared_ptr<Reducer*> self_;  // outlived by what the engine calls at the end of a backward

  std::vector<Bucket> plan_;
  std::vector<BucketState> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<Tensor> gradients_;                     // each parameter's place in its bucket
  std::unique_ptr<comm::Registration> registration_;  // of all arrays; ends before they do
  std::unique_ptr<ParameterShards> shards_;

  struct Weighted {
    Tensor weight, unit;        // f64 scalars; gradients are those of the loss times weight / unit
    Tensor seed;                // gradient of the loss
    double known = 0;           // the weight where the host knows it and it is not 0
    bool is_unit_sure = false;  // that it is the weight of a backward that counts
  };
  std::optional<Weighted> weighted_;  // the backward that runs
  Tensor accumulated_weight_, unit_;  // of backwards that accumulated; undefined if there are none
  bool is_unit_sure_ = false;         // as of Weighted
  bool is_cleared_ = false;           // a gradient was, since the last of those
  Tensor total_weight_;               // of all ranks
  Tensor how_many_;                   // of them have accumulated, or have no backward
  bool counts_by_other_ = false;      // in a backward that has its weight through another reducer
  std::vector<std::weak_ptr<Reducer*>> joined_;  // those that do, in this one's
  Tensor bucket_factor_;                         // undefined where the seed has it

  /// Found by each backward where parameters may be unused; if the graph is static, by the first.
  struct Participation {
    std::optional<std::vector<std::size_t>> unreached;  // by this rank's backward
    std::vector<bool> given;                            // gradients that this rank has
    std::vector<std::int32_t> users;                    // how many ranks have each
    bool all_known = false;                             // of a static graph: all ranks are known
  };
  Participation participation_;
  bool has_data_ = true;  // of the reduction that runs: false in `reduce_without_backward`

  UpdateLog updates_;                    // of all optimizers
  bool declared_ = false;                // the last of them
  std::vector<bool> begun_;              // parameters whose gradient began since the last reduction
  std::string kept_;                     // which of them a backward adds to gradients of before it
  bool hears_of_accumulations_ = false;  // before they begin
  std::vector<bool> is_local_;   // parameters whose gradient has what backwards accumulated on it
  std::uint64_t forwards_ = 0;   // recorded to be reduced
  bool running_ = false;         // inside a backward that reduces
  std::string failure_;          // of a backward; this reducer is of no use any more
  std::string taken_;            // the first parameter that has another sink now
  std::size_t next_bucket_ = 0;  // the first that is not launched
  std::vector<bool> ready_;
  std::vector<bool> has_gradient_;  // when its bucket left
  std::vector<std::size_t> ready_order_;
  bool rebuilt_ = false;
  TraceRecorder recorder_;
  const std::shared_ptr<StepTimes> step_times_ = std::make_shared<StepTimes>();
  std::optional<StepTimes::Scope> times_of_backward_;
  std::unique_ptr<BucketPlanner> planner_;  // until the buckets are planned
  std::optional<BackwardTimes> measured_;   // by it
  HiddenCommunication by_sizes_alone_;      // as the buckets before it were predicted
  HiddenCommunication at_best_;             // as any might
};

}  // namespace lockstep::parallel
