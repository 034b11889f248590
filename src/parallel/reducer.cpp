#include "lockstep/parallel/reducer.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "autograd/name_place.hpp"
#include "comm/communicator_backend.hpp"
#include "core/current_message.hpp"
#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/memory.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/parallel/agreement.hpp"
#include "lockstep/tensor/factories.hpp"
#include "parallel/bucket_planner.hpp"
#include "parallel/gathered_parameters.hpp"
#include "parallel/micro_batch_tree.hpp"
#include "parallel/owner_number.hpp"
#include "runtime/step_recording.hpp"
#include "tensor/write_note.hpp"

namespace lockstep::parallel {

Reducer::Reducer(std::vector<NamedParameter> parameters, comm::CommunicatorPtr group,
                 ReducerOptions options)
    : parameters_(std::move(parameters)),
      group_(std::move(group)),
      options_(std::move(options)),
      accumulate_tag_(autograd::new_graph_tag()),
      reduce_tag_(autograd::new_graph_tag()),
      self_(std::make_shared<Reducer*>(this)),
      recorder_(group_->device()) {
  LOCKSTEP_CHECK(shares_out() || !(options_.shares_parameters || options_.frees_buckets),
                 InvalidArgument,
                 "parameters are shared out, or buckets freed, only where averages "
                 "are: not by the reduction ",
                 options_.reduction->name());
  LOCKSTEP_CHECK(
      !options_.gathers_parameters || !(options_.find_unused_parameters || options_.static_graph),
      InvalidArgument,
      "find_unused_parameters and static_graph let ranks use different parameters, and "
      "with zero_stage 3 all ranks gather what each uses; give zero_stage 2");
  const bool is_measured = options_.bucket_plan == BucketPlanning::measured;
  LOCKSTEP_CHECK(!is_measured || !shares_out(), InvalidArgument,
                 "the measured plan lays buckets out again, and what ranks share out of them "
                 "(ZeRO) stays where it is; give bucket_plan = pytorch");
  LOCKSTEP_CHECK(!is_measured || !options_.find_unused_parameters || options_.static_graph,
                 InvalidArgument,
                 "the measured plan wants gradients that are ready in the same order in each step, "
                 "unlike find_unused_parameters; give static_graph in its place, or bucket_plan = "
                 "pytorch");
  for (const auto& [name, tensor] : parameters_) {
    LOCKSTEP_CHECK(tensor.device() == group_->device(), InvalidArgument, "parameter ", name,
                   " is on ", tensor.device(), ", the group reduces on ", group_->device(),
                   "; move the model there before it is wrapped");
    leaves_.emplace_back(&autograd::leaf_of(tensor));
    name_memory(tensor.data_ptr(), tensor.nbytes(), name);
  }
  check_same_parameters(*group_, parameters_);
  if (options_.micro_batches != 0) use_micro_batch_tree();
  number_ = agree_on_number(*group_);
  begun_.resize(parameters_.size());
  is_local_.resize(parameters_.size());
  group_->implementation().before_leaving(number_, [this] { declare_last_updates(); });
  std::vector<std::size_t> reverse_registration(parameters_.size());
  std::iota(reverse_registration.rbegin(), reverse_registration.rend(), std::size_t{0});
  try {
    build(plan_by_sizes(reverse_registration));
    if (options_.shares_parameters)
      shards_ = std::make_unique<ParameterShards>(
          parameters_, group_, plan_, averages_of_buckets(),
          static_cast<autograd::GradientSink&>(*this),
          [this](std::size_t bucket) { return id_of(buckets_.size() + 1 + bucket); },
          uses_in_backward());
    if (gathered()) gathered()->on_gather([this](const comm::Work& work) { note_time(work); });
  } catch (...) {
    group_->implementation().before_leaving(number_, nullptr);
    give_back();
    throw;
  }
  begun_.assign(parameters_.size(), false);
  if (is_measured && group_->size() > 1)
    planner_ = std::make_unique<BucketPlanner>(*group_, detail::concat("replica ", number_));
}

Reducer::~Reducer() {
  if (running_) fail_backward("its DistributedDataParallel ended inside it");
  group_->implementation().before_leaving(number_, nullptr);
  declare_last_updates();
  for (BucketState& bucket : buckets_) bucket.exchange = {};
  wait_for_collectives();
  registration_.reset();
  give_back();
  try {
    if (hears_of_accumulations_) autograd::on_backward_through(accumulate_tag_, nullptr);
    if (forwards_ > 0)
      autograd::close_graph_tag(
          reduce_tag_,
          "backward goes through a forward of a DistributedDataParallel that has ended, so that "
          "nothing would average its gradients over the ranks; keep the wrapper until the "
          "backwards of its forwards are done");
  } catch (...) {
    // No host memory is left: whoever needs some next says so.
  }
}

void Reducer::wait_for_collectives() noexcept {
  for (const BucketState& bucket : buckets_)
    for (const comm::Work& work : bucket.works) try {
        work.synchronize();
      } catch (...) {
        // The failure was, or will be, reported by whoever waits for the group next.
      }
}

// No bucket carries them to the other ranks. One that unwinds ends otherwise, or does not end yet.
void Reducer::declare_last_updates() noexcept {
  comm::CommunicatorBackend& group = group_->implementation();
  if (group.size() == 1 || !group.options().check_signatures) return;
  if (!failure_.empty() || std::uncaught_exceptions() > 0 || std::exchange(declared_, true)) return;
  try {
    const std::string updates = updates_.take();
    group.declare(number_, updates.empty() ? "no parameter updated" : updates);
  } catch (...) {
    // No host memory is left: whoever needs some next says so.
  }
}

void Reducer::give_back() noexcept {
  for (const auto& leaf : leaves_) {
    try {
      leaf->release_sink(*this);
    } catch (...) {
      // Out of memory for a private copy: the gradient stays in the bucket, which it keeps alive.
    }
  }
  for (BucketState& bucket : buckets_) {
    use_on_current_stream(bucket.array);
    use_on_current_stream(bucket.averages);
  }
}

void Reducer::before_change(std::size_t index, const Tensor& value) {
  LOCKSTEP_THROW(InvalidArgument, "parameter ", parameters_[index].first, " was wrapped as ",
                 parameters_[index].second.shape(), ", ", parameters_[index].second.dtype(), " on ",
                 parameters_[index].second.device(), ", and would become ", value.shape(), ", ",
                 value.dtype(), " on ", value.device(),
                 "; move, convert or reshape it before the model is wrapped");
}

std::vector<Tensor> Reducer::averages_of_buckets() const {
  std::vector<Tensor> averages;
  for (const BucketState& bucket : buckets_) averages.push_back(bucket.averages);
  return averages;
}

Tensor Reducer::memory_for(std::size_t index) {
  begun_[index] = true;
  is_local_[index] = false;
  make_array(bucket_of_[index]);
  return gradients_[index];
}

void Reducer::on_taken(std::size_t index) noexcept {
  if (taken_.empty()) taken_ = parameters_[index].first;
  if (gathered()) gathered()->leave_out(index);
}

void Reducer::on_update(std::size_t index, std::string_view how) {
  LOCKSTEP_CHECK(!gathered() || !gathered()->is_held(), InvalidArgument,
                 "an optimizer's step while whole_parameters() holds the values from before it; "
                 "let that end first");
  LOCKSTEP_CHECK(!running_, InvalidArgument,
                 "an optimizer's step within a backward that is to average "
                 "the gradient of ",
                 parameters_[index].first,
                 " over ranks; averages are there when backward returns: step after it");
  updates_.note(index, how);
}

/// Whether the gradient has what backwards added up on this rank, and no reduction has taken in.
bool Reducer::is_local(std::size_t index) const {
  const bool is_added_to = !running_ && autograd::Engine::reaches(accumulate_tag_);
  return (is_local_[index] || is_added_to) && leaves_[index]->gradient().defined();
}

void Reducer::check_update(std::size_t index) const {
  const bool is_left_out = shards_ || tree_;
  if (group_->size() == 1 && !is_left_out) return;
  LOCKSTEP_CHECK(
      !is_local(index) && !(tree_ && tree_->count() > 0), InvalidArgument,
      "an optimizer's step while the gradient of ", parameters_[index].first,
      " is what backwards under no_sync() have added up on this rank, and not the "
      "average over ranks, so that ",
      is_left_out ? "the update would leave it out" : "replicas would become different",
      ". Let the step's last forward and backward run outside of it, also where an "
      "epoch ends amid an accumulation",
      tree_ ? "" : ", or drop the gradients by the module's zero_grad()",
      is_left_out ? "" : "; averages that are made by hand go in behind that, by set_grad()");
}

void Reducer::on_clip(std::size_t index, std::string_view how) {
  if (!running_ && !is_local(index)) updates_.note(index, how);  // an average, as all ranks have
}

void Reducer::check_usable() const {
  if (shards_) shards_->check_in_place();
  LOCKSTEP_CHECK(
      taken_.empty(), InvalidArgument, "parameter ", taken_,
      " was wrapped again, and its gradient belongs to the new DistributedDataParallel; use "
      "that one, this one does not reduce any more");
  LOCKSTEP_CHECK(
      failure_.empty(), InvalidArgument, "a backward of this model failed (", failure_, "); ",
      group_->size() > 1 ? "its group has failed with it: end, and go on from a checkpoint"
                         : "wrap the model again");
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    LOCKSTEP_CHECK(
        tensor.requires_grad() && tensor.impl().node.get() == leaves_[i].get(), InvalidArgument,
        "parameter ", name,
        " was frozen, or has no gradient any more, since the model was wrapped; do that before, or "
        "wrap the model again");
  }
}

/// Before anything of the backward has run, so that the other ranks hear of whatever fails in it.
void Reducer::begin_backward() {
  if (running_) return;  // one inside another
  check_usable();        // a refusal ends nobody: all ranks may be refused alike, and go on
  if (gathered()) gathered()->check_kept();
  if (shards_) shards_->check_cleared();
  if (options_.reduction && options_.reduction->is_delayed()) {
    note_kept_gradients();
    LOCKSTEP_CHECK(kept_.empty(), InvalidArgument, "the reduction '", options_.reduction->name(),
                   "', which gives the averages of the backward before, is to be ", kept_,
                   ": these would be sent as this rank's own. Let all backwards of a step but the "
                   "last run under no_sync(), and call zero_grad() after each step (zeros that are "
                   "written by hand count as gradients)");
  }
  check_micro_batch(true);
  if (!weighted_ && !join_weights()) check_weights_fit(false);
  reset_backward();
  const std::weak_ptr<Reducer*> self = self_;
  autograd::Engine::queue_callback(
      [self] {
        if (const auto reducer = self.lock()) (*reducer)->finish_backward();
      },
      [self] {
        if (const auto reducer = self.lock()) (*reducer)->fail_backward(current_message());
      });
  if (gathered()) gathered()->begin_backward();
  share_weights();
  mark_unused();
}

void Reducer::reset_backward() {
  running_ = true;
  recorder_.begin(planner_ && rebuilt_);
  if (!is_captured() && group_->size() > 1) step_times_->begin();
  times_of_backward_.emplace(step_times());
  ready_.assign(parameters_.size(), false);
  has_gradient_.assign(parameters_.size(), false);
  ready_order_.clear();
  next_bucket_ = 0;
  note_kept_gradients();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    buckets_[b].waiting = plan_[b].parameters.size();
}

/// What one rank alone adds to the last averages would be shared among all by the next ones.
void Reducer::note_kept_gradients() {
  IndexRanges kept;
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (leaves_[i]->has_contributions() && !begun_[i]) kept.add(i);
  kept_ = kept.count() == 0
              ? std::string()
              : detail::concat("added to ", kept.count(), " gradients that were not cleared (",
                               kept.text(), ")");
}

void Reducer::on_final(std::size_t index) {
  use_on_current_stream(gradients_[index]);
  if (!running_) {
    LOCKSTEP_CHECK(autograd::Engine::reaches(accumulate_tag_), InvalidArgument,
                   "backward reached parameter ", parameters_[index].first,
                   " without a forward through the DistributedDataParallel wrapper, so that "
                   "nothing would average what it adds; call the wrapper, not the module, and add "
                   "what is computed of parameters alone, such as an L2 penalty, to the loss of a "
                   "forward");
    // One that a hook has cleared stays marked, if backwards before had left one.
    if (leaves_[index]->gradient().defined()) is_local_[index] = true;
    leave_local_as_captured();
    return;
  }
  if (ready_[index]) check_takes_part_as_before(index);
  LOCKSTEP_CHECK(!ready_[index], InvalidArgument, "parameter ", parameters_[index].first,
                 " became ready twice in one backward");
  mark_ready(index);
}

void Reducer::mark_ready(std::size_t index) {
  ready_[index] = true;
  recorder_.ready(index);
  ready_order_.push_back(index);
  --buckets_[bucket_of_[index]].waiting;
  launch_ready_buckets();
}

void Reducer::launch_ready_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].waiting == 0)
    launch(next_bucket_++);
}

void Reducer::launch(std::size_t number) {
  make_array(number);
  BucketState& bucket = buckets_[number];
  const Bucket& plan = plan_[number];
  for (const std::size_t index : plan.parameters) {
    check_takes_part_as_before(index);
    has_gradient_[index] = contributes(index);
    if (!leaves_[index]->gradient().defined()) gradients_[index].zero_();
  }
  scale_by_weights(bucket.array);
  if (planner_ && rebuilt_) planner_->probe();
  recorder_.complete(number);
  bucket.works.clear();
  bucket.gradients->begin_step();
  bucket.parts = std::exchange(bucket.parts_run, 0);
  bucket.exchange = options_.reduction->exchange(*bucket.gradients);
  go_on(bucket);
  if (gathered()) gathered()->let_go(number);
  constexpr std::size_t lag = 2;  // until then its collective is done, or others wait behind it
  if (number >= lag) go_on_early(number - lag);
}

/// With what is not the last part: by the count of the backward before, which all ranks share.
/// Where buckets are to be freed, with all of it.
void Reducer::go_on_early(std::size_t number) {
  BucketState& bucket = buckets_[number];
  if (options_.frees_buckets) {
    while (!bucket.exchange.is_done()) go_on(bucket);
    note_write(bucket.averages);
    free_array(number);
  } else if (bucket.parts_run + 1 < bucket.parts) {
    go_on(bucket);
  }
}

void Reducer::go_on(BucketState& bucket) {
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard no_casts;
  if (!bucket.exchange.is_done()) ++bucket.parts_run;
  try {
    bucket.exchange.resume();
    const bool has_ended = bucket.gradients && bucket.exchange.is_done();
    if (has_ended && !options_.reduction->is_delayed()) bucket.gradients->check_awaited();
  } catch (InvalidArgument& error) {  // of an op of a hook, whose own message knows no bucket
    autograd::name_place(error, detail::concat("the reduction '", options_.reduction->name(),
                                               "' of ", bucket.label));
    throw;
  }
}

comm::Work Reducer::start_collective(
    std::size_t bucket, std::size_t number, std::size_t bytes,
    FunctionRef<comm::Work(const comm::CollectiveOptions&)> collective) {
  recorder_.launch(buckets_[bucket].label, bucket, bytes);
  comm::CollectiveOptions options;
  std::string label;
  if (is_captured())
    options.renew = [this, bucket, number](std::string& name, comm::CollectiveId& id) {
      name = label_of(bucket, number);
      id = id_of(bucket, number);
    };
  else
    label = label_of(bucket, number);
  options.label = label;
  options.id = id_of(bucket, number);
  comm::Work work = collective(options);
  buckets_[bucket].works.push_back(work);
  recorder_.launched(work);
  note_time(work);
  return work;
}

/// What a bucket's collective says to the other ranks; the first one tells what led to it.
std::string Reducer::label_of(std::size_t bucket, std::size_t collective) {
  if (collective > 0)
    return detail::concat(buckets_[bucket].full_label, ", collective ", collective + 1);
  std::string told;
  if (bucket == 0)
    for (const std::string& each :
         {kept_, updates_.take(), tree_ ? tree_->describe_random_numbers() : std::string()})
      if (!each.empty()) told += each + ": ";
  return told + buckets_[bucket].full_label;
}

void Reducer::note_time(const comm::Work& work) {
  if (!is_captured()) step_times_->add(work);
}

bool Reducer::is_captured() const { return StepRecording::on(group_->device()) != nullptr; }

/// Parts are the buckets, the used map, the gathers of each bucket, and the weights; buckets have
/// more of them for later collectives.
comm::CollectiveId Reducer::id_of(std::size_t part, std::size_t collective) const {
  const std::size_t parts = 2 * buckets_.size() + 2;
  return {.owner = number_, .step = forwards_, .part = collective * parts + part};
}

void Reducer::finish_backward() {
  try {
    recorder_.end_backward();
    check_usable();
    check_all_ready();
    find_users();
    tell_of_unused();
    wait_for_buckets();
    if (shares_out()) {
      for (const auto& leaf : leaves_) leaf->clear_gradient();
      if (shards_) shards_->take_gradients(participation_.users);
    } else {
      take_over_results();
    }
    rebuild_in_measured_order();
    begun_.assign(parameters_.size(), false);
    if (tree_) tree_->end_step();
    forget_weights();
    is_local_.assign(parameters_.size(), false);
    leave_local_as_captured();
    running_ = false;
    times_of_backward_.reset();
    if (gathered()) gathered()->end_step();
  } catch (...) {
    fail_backward(current_message());
    throw;
  }
}

void Reducer::wait_for_buckets() {
  for (bool all_done = false; !std::exchange(all_done, true);)
    for (BucketState& bucket : buckets_) {
      go_on(bucket);
      all_done &= bucket.exchange.is_done();
    }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    BucketState& bucket = buckets_[b];
    if (!bucket.array.defined()) continue;  // it is done, and freed
    bucket.exchange = {};
    note_write(bucket.array);
    note_write(bucket.averages);
    if (options_.frees_buckets) free_array(b);
  }
  recorder_.synchronize();
}

/// The other ranks may be waiting for buckets that this one will not send; not while a step is
/// captured, when nothing runs.
void Reducer::fail_backward(const std::string& reason) noexcept {
  running_ = false;
  times_of_backward_.reset();
  if (tree_) tree_->clear();
  forget_weights();
  if (gathered()) gathered()->end_backward();
  for (BucketState& bucket : buckets_) bucket.exchange = {};
  if (is_captured()) return;
  failure_ = reason;
  if (group_->size() == 1) return;
  group_->abort(detail::concat("rank ", group_->rank(), ": a backward failed: ", reason));
  // Some are averages, some this rank's own, and buckets may still be written.
  for (const auto& leaf : leaves_) leaf->clear_gradient();
}

}  // namespace lockstep::parallel
