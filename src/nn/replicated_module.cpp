#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/recomputation.hpp"
#include "lockstep/nn/batch_norm.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/parallel/agreement.hpp"
#include "lockstep/tensor/factories.hpp"
#include "parallel/gathered_parameters.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::nn {
namespace {

std::vector<Tensor> tensors_of(const std::vector<std::pair<std::string, Tensor>>& named) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

/// Where the times of its collectives belong: to a step, if it is recorded.
std::shared_ptr<parallel::StepTimes> times_of_forward(const parallel::Reducer& reducer) {
  return grad_enabled() ? reducer.step_times() : nullptr;
}

void check_same_options(comm::Communicator& group, const DistributedDataParallelOptions& options) {
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  const std::pair<std::string, std::string> settings[] = {
      {"bucket_bytes", std::to_string(options.bucket_bytes)},
      {"first_bucket_bytes", std::to_string(options.first_bucket_bytes)},
      {"bucket_plan",
       options.bucket_plan == parallel::BucketPlanning::measured ? "measured" : "pytorch"},
      {"find_unused_parameters", flag(options.find_unused_parameters)},
      {"static_graph", flag(options.static_graph)},
      {"zero_stage", std::to_string(options.zero_stage)},
      {"register_buckets", flag(options.register_buckets)},
      {"broadcast_buffers", flag(options.broadcast_buffers)},
      {"reduction",
       options.reduction == GradientReduction::reproducible ? "reproducible" : "standard"},
      {"micro_batches", std::to_string(options.micro_batches)}};
  parallel::check_same_settings(group, settings);
}

/// A rank that makes no forward would keep the others waiting in theirs.
void check_forward_is_alone(nn::Module& module) {
  if (!module.is_training()) return;
  for (const auto& [name, part] : module.named_modules()) {
    const auto* const norm = dynamic_cast<const BatchNorm*>(part);
    LOCKSTEP_CHECK(!norm || !norm->group() || norm->group()->size() == 1 || !norm->is_training(),
                   InvalidArgument, "backward_without_data: ", name.empty() ? "the module" : name,
                   " is a batch norm over the ranks of a group, which wait for each other in "
                   "forward; make a forward of a batch of 0 rows and its backward(loss, 0)");
  }
}

}  // namespace

ReplicatedModule::ReplicatedModule(nn::ModulePtr<nn::Module> module, comm::CommunicatorPtr group,
                                   DistributedDataParallelOptions options)
    : module_(std::move(module)),
      group_(std::move(group)),
      options_(options),
      parameters_(module_->named_parameters()) {
  LOCKSTEP_CHECK(group_, InvalidArgument,
                 "DistributedDataParallel: no group to reduce over; give session.world(), or the "
                 "group of a split on the ranks that are in one");
  const auto buffers = module_->named_buffers();
  check_same_options(*group_, options_);
  LOCKSTEP_CHECK(options.zero_stage >= 0 && options.zero_stage <= 3, InvalidArgument,
                 "DistributedDataParallel: a zero_stage of ", options.zero_stage,
                 "; there are 0, 1, 2 and 3");
  check_reproducible();
  parallel::check_same_parameters(*group_, parameters_);
  parallel::check_same_parameters(*group_, buffers);
  parallel::broadcast_tensors(*group_, tensors_of(parameters_));
  parallel::broadcast_tensors(*group_, tensors_of(buffers));
  for (const auto& [name, parameter] : parameters_) trained_.push_back(parameter.requires_grad());
  LOCKSTEP_CHECK(!trained_parameters().empty(), InvalidArgument,
                 "DistributedDataParallel: none of the module's ", parameters_.size(),
                 " parameters requires a gradient, so there is nothing to reduce; "
                 "unfreeze what shall train, or call the module itself");
  reducer_ = make_reducer(group_, options.zero_stage > 0 ? parallel::reduce_scatter_buckets()
                                                         : parallel::all_reduce_buckets());
  if (reducer_->gathered()) tell_of_modules();
}

ReplicatedModule::~ReplicatedModule() {
  for (const auto& [module, hook] : hooks_) module->remove_call_hooks(hook);
}

/// Where a module begins, no op is in the middle of using what the one before it did.
void ReplicatedModule::tell_of_modules() {
  for (const auto& [name, module] : module_->named_modules())
    hooks_.emplace_back(
        IntrusivePtr<nn::Module>(module),
        module->add_call_hooks({.begin = [this] { reducer_->gathered()->begin_module(); }}));
}

/// What of the wrapper and the module would make bits depend on the number of ranks.
void ReplicatedModule::check_reproducible() {
  if (options_.reduction == GradientReduction::standard) {
    LOCKSTEP_CHECK(options_.micro_batches == 0, InvalidArgument,
                   "DistributedDataParallel: micro_batches is ", options_.micro_batches,
                   ", which only reduction = reproducible takes; leave it 0");
    return;
  }
  LOCKSTEP_CHECK(options_.micro_batches > 0, InvalidArgument,
                 "reduction = reproducible with micro_batches of ", options_.micro_batches,
                 "; give how many a step has over all ranks, a power of two");
  LOCKSTEP_CHECK(options_.zero_stage == 0, InvalidArgument,
                 "reduction = reproducible with a zero_stage of ", options_.zero_stage,
                 ", whose parts of gradients depend on the number of ranks; give one of them");
  for (const auto& [name, module] : module_->named_modules())
    LOCKSTEP_CHECK(!dynamic_cast<const BatchNorm*>(module), InvalidArgument,
                   "reduction = reproducible: ", name.empty() ? "the module" : name,
                   " is a batch norm, whose statistics are those of a rank's micro-batches, or of "
                   "all ranks; use layer or group norm, or reduction = standard");
}

NamedTensors ReplicatedModule::trained_parameters() const {
  NamedTensors trained;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (trained_[i]) trained.push_back(parameters_[i]);
  return trained;
}

std::unique_ptr<parallel::Reducer> ReplicatedModule::make_reducer(
    const comm::CommunicatorPtr& group, std::shared_ptr<parallel::BucketReduction> reduction,
    const std::string& averaging) const {
  return std::make_unique<parallel::Reducer>(
      trained_parameters(), group,
      parallel::ReducerOptions{.bucket_caps = {.last_bytes = options_.first_bucket_bytes,
                                               .bytes = options_.bucket_bytes},
                               .bucket_plan = options_.bucket_plan,
                               .find_unused_parameters = options_.find_unused_parameters,
                               .static_graph = options_.static_graph,
                               .reduction = std::move(reduction),
                               .shares_parameters = options_.zero_stage > 0,
                               .gathers_parameters = options_.zero_stage > 2,
                               .frees_buckets = options_.zero_stage > 1,
                               .registers_buckets = options_.register_buckets,
                               .micro_batches = options_.micro_batches,
                               .averaging = averaging});
}

void ReplicatedModule::check_may_keep_gradients(const std::string& averaging) const {
  LOCKSTEP_CHECK(averaging_.empty(), InvalidArgument, averaging,
                 ": the parameters of this DistributedDataParallel are averaged by ", averaging_,
                 "; wrap the module again for another");
  LOCKSTEP_CHECK(options_.zero_stage == 0, InvalidArgument, averaging,
                 " averages parameters that each rank updates by itself, and a zero_stage of ",
                 options_.zero_stage, " shares their updates out; give zero_stage 0");
  LOCKSTEP_CHECK(options_.reduction == GradientReduction::standard, InvalidArgument, averaging,
                 " lets ranks drift, by how many of them there are, and reduction = reproducible "
                 "makes results independent of that; give one of them");
  LOCKSTEP_CHECK(!has_hook_, InvalidArgument, averaging,
                 " leaves no gradients to be reduced by the communication hook that is registered; "
                 "use one of the two");
}

/// Gradients of a group of this rank alone need no collective; weights, accumulation and checks
/// stay what they are, but concern nobody else.
void ReplicatedModule::keep_gradients(std::string averaging, std::weak_ptr<const void> life,
                                      std::function<void()> begin) {
  check_may_keep_gradients(averaging);
  auto own = make_reducer(
      group_->split(group_->rank(), 0),
      parallel::reduce_buckets_by(
          "none", [](parallel::GradBucket&) -> parallel::BucketExchange { co_return; }),
      averaging);
  reducer_ = std::move(own);
  averaging_ = std::move(averaging);
  life_ = std::move(life);
  begin_ = std::move(begin);
}

void ReplicatedModule::register_comm_hook(std::shared_ptr<parallel::BucketReduction> hook) {
  LOCKSTEP_CHECK(averaging_.empty(), InvalidArgument, "a communication hook: ", averaging_,
                 " averages parameters, and leaves no gradients to be reduced; use one of the two");
  reducer_->set_reduction(std::move(hook));
  has_hook_ = true;
}

void ReplicatedModule::check_same_tensors() const {
  const auto present = module_->parameters();
  LOCKSTEP_CHECK(present.size() == parameters_.size(), InvalidArgument, "the module has ",
                 present.size(), " parameters, it had ", parameters_.size(),
                 " when it was wrapped; wrap it again");
  for (std::size_t i = 0; i < present.size(); ++i) {
    const std::string& name = parameters_[i].first;
    LOCKSTEP_CHECK(present[i].is_same(parameters_[i].second), InvalidArgument, "parameter ", name,
                   " was replaced after the model was wrapped; wrap it again, or copy_ the values");
    LOCKSTEP_CHECK(present[i].requires_grad() == trained_[i], InvalidArgument, "parameter ", name,
                   trained_[i] ? " was frozen" : " was unfrozen",
                   " after the model was wrapped; wrap it again, so that all ranks reduce the same "
                   "gradients, or call the module itself for what is not to train it");
  }
}

ForwardScope::ForwardScope(parallel::Reducer& reducer, parallel::Reducer::Mode mode)
    : tag_(reducer.record_forward(mode)),
      times_(times_of_forward(reducer)),
      gathered_(reducer.gathered()) {
  if (gathered_) gathered_->begin_forward(mode == parallel::Reducer::Mode::reduce);
}

ForwardScope::~ForwardScope() {
  if (gathered_) gathered_->end_forward(grad_enabled());
}

WholeParameters ReplicatedModule::whole_parameters() const {
  reducer_->share_writes();
  return WholeParameters(reducer_->gathered());
}

WholeParameters::WholeParameters(parallel::GatheredParameters* gathered) {
  if (!gathered) return;
  gathered->hold();
  gathered_ = gathered->self();
}

WholeParameters::~WholeParameters() {
  if (const auto gathered = gathered_.lock()) (*gathered)->release();
}

ForwardScope ReplicatedModule::record_forward() {
  LOCKSTEP_CHECK(
      !autograd::Recomputation::is_open(), InvalidArgument,
      "DistributedDataParallel: its forward is inside nn::checkpoint, which would run it "
      "again in backward; checkpoint parts of the wrapped module instead");
  LOCKSTEP_CHECK(averaging_.empty() || !life_.expired() || !grad_enabled(), InvalidArgument,
                 "DistributedDataParallel: its ", averaging_,
                 " has ended, and nothing would keep the replicas together; keep it as long as the "
                 "model trains, or wrap the module again");
  reducer_->check_usable();
  if (reducer_->gathered()) reducer_->gathered()->check_kept();
  check_same_tensors();
  if (begin_ && grad_enabled()) {
    begin_();
    begin_ = nullptr;
  }
  if (begins_step()) send_buffers();
  return {*reducer_, only_accumulates() ? parallel::Reducer::Mode::accumulate
                                        : parallel::Reducer::Mode::reduce};
}

/// Whether a training forward is the first of a step. As in PyTorch, one that accumulates may be:
/// between steps ranks then differ in nothing but buffers that the next step replaces.
bool ReplicatedModule::begins_step() {
  if (!module_->is_training()) return false;
  if (grad_enabled()) leave_step_as_captured();
  return grad_enabled() ? std::exchange(begins_step_, !only_accumulates()) : !only_accumulates();
}

/// A launch begins and leaves a step as the call did that was captured; a capture that is given up
/// has not begun it.
void ReplicatedModule::leave_step_as_captured() {
  StepRecording* const recording = StepRecording::on(group_->device());
  if (!recording || !recording->meets(&begins_step_)) return;
  recording->when_abandoned([this, before = begins_step_] { begins_step_ = before; });
  if (may_send_buffers() && !module_->named_buffers().empty())
    recording->require(
        [this, life = std::weak_ptr<const int>(stop_), before = begins_step_]() -> std::string {
          return life.expired() || begins_step_ == before
                     ? ""
                     : "buffers, which are sent where a step begins, are to be sent otherwise than "
                       "when it was captured";
        });
  const auto left = std::make_shared<bool>();
  recording->at_end([this, left] { *left = begins_step_; });
  recording->after_launch([this, left] { begins_step_ = *left; });
}

ReplicatedModule::Beside ReplicatedModule::keeps_beside() const {
  if (keeps_gradients()) return {averaging_, this};
  const parallel::BucketReduction& hook = reducer_->reduction();
  return hook.keeps_state() ? Beside{"the communication hook " + hook.name(), &hook} : Beside{};
}

bool ReplicatedModule::has_accumulated() const { return reducer_->has_accumulated(); }

void ReplicatedModule::set_accumulated(const parallel::Accumulated& accumulated) {
  reducer_->set_accumulated(accumulated);
  begins_step_ = !reducer_->has_accumulated();
}

void ReplicatedModule::drop_accumulated() {
  if (!has_accumulated()) return;
  reducer_->drop_accumulated();
  begins_step_ = true;
}

bool ReplicatedModule::may_send_buffers() const {
  return averaging_.empty() && options_.broadcast_buffers && group_->size() > 1;
}

void ReplicatedModule::send_buffers() {
  if (!may_send_buffers()) return;
  const auto buffers = module_->named_buffers();
  if (buffers.empty()) return;
  const parallel::StepTimes::Scope times(times_of_forward(*reducer_));
  const auto renew = [this](std::string&, comm::CollectiveId& id) {
    id.step = reducer_->next_forward().step;
  };
  parallel::broadcast_tensors(*group_, tensors_of(buffers), 0,
                              {.label = "buffers", .id = reducer_->next_forward(), .renew = renew});
}

NamedTensors ReplicatedModule::named_parameters(const std::string& prefix) const {
  NamedTensors named = module_->named_parameters(prefix);
  const parallel::ParameterShards* const shards = reducer_->shards();
  if (!shards) return named;
  auto shard = shards->shards().begin();
  for (std::size_t i = 0; i < named.size(); ++i)
    if (trained_[i]) named[i].second = (shard++)->second;
  return named;
}

std::vector<Tensor> ReplicatedModule::parameters() const { return tensors_of(named_parameters()); }

/// States that all go by other names would be taken for whole; those of parameters beside the
/// module's are. @param with_parts of shards, rather than of whole parameters
void ReplicatedModule::check_names_of_state(const NamedTensors& state, bool with_parts) const {
  const NamedTensors trained = trained_parameters(), &parts = reducer_->shards()->shards();
  const auto& held = with_parts ? parts : trained;
  const std::string* other = nullptr;
  for (const auto& [key, value] : state) {
    if (reducer_->shards()->range_of(key)) return;  // it has their names
    if (!other && value.dim() > 0 && std::ranges::any_of(held, [&](const auto& each) {
          return each.second.shape() == value.shape();
        }))
      other = &key;
  }
  LOCKSTEP_CHECK(
      !other, InvalidArgument, "the state ", *other,
      " has the shape of a parameter of the DistributedDataParallel, and no state its "
      "name; give the optimizer its named_parameters() under their own names, or save it "
      "in a checkpoint, which finds shards under any (checkpoint::state_of(optimizer, "
      "ddp))");
}

NamedTensors ReplicatedModule::gather_optimizer_state(const NamedTensors& state) const {
  if (!reducer_->shards()) return state;
  check_names_of_state(state, true);
  return reducer_->shards()->gather(state);
}

NamedTensors ReplicatedModule::shard_optimizer_state(const NamedTensors& state) const {
  if (!reducer_->shards()) return state;
  check_names_of_state(state, false);
  return reducer_->shards()->scatter(state);
}

void ReplicatedModule::backward(const Tensor& loss, double weight) {
  LOCKSTEP_CHECK(std::isfinite(weight) && weight >= 0, InvalidArgument, "backward: the weight is ",
                 weight, "; must be finite and not negative");
  reducer_->backward(loss, weight);
}

bool ReplicatedModule::backward_without_data() {
  LOCKSTEP_CHECK(
      averaging_.empty(), InvalidArgument, "backward_without_data: with ", averaging_,
      " no rank knows in a step whether others have data; let all make the same number of "
      "steps, as a DistributedSampler does");
  LOCKSTEP_CHECK(!only_accumulates() && grad_enabled(), InvalidArgument,
                 "backward_without_data: takes part in a reduction, which ",
                 only_accumulates() ? "no_sync() puts off" : "a NoGradGuard prevents");
  LOCKSTEP_CHECK(!reducer_->gathered(), InvalidArgument,
                 "backward_without_data: with zero_stage 3 forward and backward gather parameters "
                 "over all ranks, and a rank that makes neither would keep the others waiting; "
                 "make a step of weight 0 with any data, or give zero_stage 2");
  check_forward_is_alone(*module_);
  { const ForwardScope forward = record_forward(); }
  return reducer_->reduce_without_backward();
}

}  // namespace lockstep::nn
