#include "lockstep/train/step.hpp"

#include <algorithm>
#include <limits>
#include <ranges>
#include <utility>

#include "core/exact_number.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/checkpoint/states.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/nn/batch_norm.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/observe/trace_range.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/tensor/factories.hpp"
#include "memory/step_rehearsal.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::train {
namespace {

using NoSync = DistributedDataParallel<nn::Module>::NoSync;

amp::Autocast autocast(const StepOptions& options) {
  return amp::Autocast(options.autocast.value_or(DType::bf16),
                       {.enabled = options.autocast.has_value()});
}

/// Those of the first tensor, or where it has none of the one that has most.
/// @throws InvalidArgument unless there is a batch.
std::int64_t rows_of_batch(std::span<const Tensor> inputs) {
  LOCKSTEP_CHECK(!inputs.empty() && inputs[0].dim() > 0, InvalidArgument,
                 "a step needs a batch: at least one tensor, whose first dimension counts rows");
  if (inputs[0].size(0) > 0) return inputs[0].size(0);
  std::int64_t rows = 0;  // a graph may have nodes and no edges
  for (const Tensor& each : inputs) rows = std::max(rows, each.dim() > 0 ? each.size(0) : 0);
  return rows;
}

/// What ranks compare of a step, beside what its optimizer says of the update: where one of them
/// has another, training goes on, and its numbers are wrong.
std::string describe(const StepOptions& options) {
  using lockstep::detail::concat;
  std::string average = "none", autocast = "none";
  if (options.average) {
    const std::optional<double> decay = options.average->options().decay;
    average = decay ? concat("of decay ", lockstep::detail::exact(*decay)) : "of all updates";
  }
  if (options.autocast) autocast = concat(*options.autocast);
  return concat("average ", average, ", autocast ", autocast, ", scaler ",
                options.scaler && options.scaler->is_enabled() ? "given" : "none", ", max_norm ",
                options.max_norm ? lockstep::detail::exact(*options.max_norm) : "none");
}

/// Of a parameter that it lacks, a step would leave the gradient to the next.
void check_has_parameters(const optim::Optimizer& optimizer, const nn::ReplicatedModule& replica) {
  const std::vector<Tensor> held = optimizer.parameters();
  for (const auto& [name, parameter] : replica.named_parameters())
    LOCKSTEP_CHECK(
        !parameter.requires_grad() ||
            std::ranges::any_of(held, [&](const Tensor& each) { return each.is_same(parameter); }),
        InvalidArgument, "a step: parameter ", name,
        " trains, but the optimizer does not have it; give the optimizer the parameters "
        "of the DistributedDataParallel, or freeze it before the model is wrapped");
}

/// Parameters that train, and are not of the module.
std::vector<optim::ParameterState> parameters_beside(const optim::Optimizer& optimizer,
                                                     const nn::ReplicatedModule& replica) {
  const std::vector<Tensor> wrapped = replica.parameters();
  std::vector<optim::ParameterState> beside;
  for (const optim::ParameterState& held : optimizer.parameter_states())
    if (held.parameter.requires_grad() && std::ranges::none_of(wrapped, [&](const Tensor& each) {
          return each.is_same(held.parameter);
        }))
      beside.push_back(held);
  return beside;
}

/// Of one that nobody averages, each rank would train its own.
void warn_of_parameters_beside(const optim::Optimizer& optimizer,
                               const nn::ReplicatedModule& replica) {
  if (replica.group()->size() == 1 || replica.group()->rank() != 0) return;
  for (const optim::ParameterState& held : parameters_beside(optimizer, replica)) {
    const Tensor& parameter = held.parameter;
    if (autograd::leaf_of(parameter).has_sink()) continue;
    LOCKSTEP_LOG(warning, "a step's optimizer has a parameter",
                 held.name.empty() ? "" : " " + held.name, " of shape ", parameter.shape(),
                 " that no DistributedDataParallel has: each rank trains its own by its own "
                 "gradients. Let it be a parameter of the module that is wrapped, unless it shall "
                 "be so");
    return;
  }
}

/// A mean times its weight, f64. Of nothing there is no mean: that is 0.
Tensor times_weight(const Tensor& mean, const Tensor& weight) {
  return where(gt(weight, 0.0), mean * weight, zeros({}, mean.options()));
}

/// The mean of what `times_weight` gave, added up: of nothing 0.
Tensor of_weight(const Tensor& sum, const Tensor& weight) {
  return sum / clamp_min(weight, std::numeric_limits<double>::min());
}

/// The mean of the losses of a batch's parts, each by its weight.
class MeanOfParts {
 public:
  void add(const WeightedLoss& part) {
    if (const auto* number = std::get_if<double>(&part.weight)) {
      number_ += *number;
      if (*number > 0) sum_ = sum_.defined() ? sum_.add_(part.loss, *number) : part.loss * *number;
    } else {
      const Tensor& weight = std::get<Tensor>(part.weight);
      const Tensor own = times_weight(part.loss, weight);
      sum_ = sum_.defined() ? sum_.add_(own) : own;
      tensor_ = tensor_.defined() ? tensor_ + weight : weight;
    }
    last_ = part;
  }
  WeightedLoss mean() const {
    if (tensor_.defined()) return {of_weight(sum_, tensor_), tensor_};
    return sum_.defined() ? WeightedLoss(sum_ / number_, number_) : *last_;
  }

 private:
  Tensor sum_, tensor_;  // of losses times weights, and of weights
  double number_ = 0;
  std::optional<WeightedLoss> last_;
};

/// What a loss counts: its rows unless it says otherwise, and of no rows nothing. Tensors as f64.
void set_weight(WeightedLoss& loss, std::int64_t rows) {
  if (const Tensor* weight = std::get_if<Tensor>(&loss.weight))
    LOCKSTEP_CHECK(weight->defined() && weight->numel() == 1, InvalidArgument,
                   "the weight of a step's loss is one element",
                   weight->defined() ? lockstep::detail::concat(", not ", weight->shape())
                                     : std::string(", not an undefined tensor"));
  if (std::holds_alternative<double>(loss.weight))
    refuse_in_captured_step("a loss has a weight that is a number, which may be another next time,",
                            "give it as a tensor on the loss's device");
  if (rows == 0 || std::holds_alternative<std::monostate>(loss.weight))
    loss.weight = static_cast<double>(rows);
  else if (Tensor* weight = std::get_if<Tensor>(&loss.weight))
    *weight = weight->detach().reshape({}).to(DType::f64);
}

/// @throws InvalidArgument unless a batch can be taken apart.
void check_rows(std::span<const Tensor> inputs) {
  for (std::size_t i = 1; i < inputs.size(); ++i)
    LOCKSTEP_CHECK(inputs[i].dim() > 0 && inputs[i].size(0) == inputs[0].size(0), InvalidArgument,
                   "a step in micro-batches takes inputs with as many rows each; the first has ",
                   "shape ", inputs[0].shape(), ", number ", i + 1, " ", inputs[i].shape());
}

/// Ranks whose losses have no weights count by the rows of their first tensors, which may not be
/// what the loss is a mean over. @return whether it said so.
bool warn_of_rows(std::span<const Tensor> inputs) {
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].dim() == 0 || inputs[i].size(0) == inputs[0].size(0)) continue;
    LOCKSTEP_LOG(warning, "a step's loss counts by the ", inputs[0].size(0),
                 " rows of the first of its tensors, and number ", i + 1, " has ",
                 inputs[i].size(0),
                 ": if it is a mean over something else, return a train::WeightedLoss");
    return true;
  }
  return false;
}

/// For a rank that has no rows itself. @param all how many all ranks have.
void check_rows_of_ranks(const Tensor& all) {
  LOCKSTEP_CHECK(all.item() > 0, InvalidArgument,
                 "a step's batch has no rows, on any rank; leave the step out on all of them");
}

std::vector<Tensor> rows_of(std::span<const Tensor> inputs, std::int64_t begin, std::int64_t end) {
  std::vector<Tensor> part;
  for (const Tensor& each : inputs) part.push_back(each.slice(0, begin, end));
  return part;
}

}  // namespace

/// What a rank has of a step.
struct Step::OwnLoss {
  WeightedLoss mean;  // over its rows, f64
  std::int64_t rows = 0;
  std::size_t kind = 0;  // of the weight that the loss function gave

  /// The mean; 0 where nothing counts.
  Tensor counted_loss() const {
    if (const Tensor* const weight = std::get_if<Tensor>(&mean.weight))
      return where(gt(*weight, 0.0), mean.loss, zeros({}, mean.loss.options()));
    const double* const number = std::get_if<double>(&mean.weight);
    return number && !(*number > 0) ? zeros_like(mean.loss) : mean.loss;
  }
};

/// What a batch is taken apart into.
struct Step::Parts {
  std::int64_t rows = 0, count = 1;
  std::int64_t most = 0;  // rows of each, and of the last one the rest; 0: nearly as many each
  std::int64_t begin(std::int64_t part) const {
    return most > 0 ? std::min(part * most, rows) : part * rows / count;
  }
};

Step::Step(nn::Module& module, nn::ReplicatedModule& replica, optim::Optimizer& optimizer,
           Loss loss, const StepOptions& options)
    : module_(module),
      replica_(replica),
      optimizer_(optimizer),
      loss_(std::move(loss)),
      options_(options),
      unscaled_({.enabled = false, .group = replica.shard_group()}),
      scaler_(options.scaler ? *options.scaler : unscaled_),
      compared_(describe(options)),
      graph_([this](std::span<const Tensor> inputs) { return update(inputs); },
             {.max_shapes = options.max_shapes, .group = replica.group()}) {
  LOCKSTEP_CHECK(options.micro_batch >= 0, InvalidArgument, "a micro_batch of ",
                 options.micro_batch, " rows; give a number from 1 on, or 0 for all");
  LOCKSTEP_CHECK(!options.max_norm || *options.max_norm >= 0, InvalidArgument, "a max_norm of ",
                 options.max_norm.value_or(0), "; give a number from 0 on, or none");
  (void)autocast(options);  // which checks its dtype
  check_has_parameters(optimizer, replica);
  warn_of_parameters_beside(optimizer, replica);
}

StepResult Step::operator()(std::span<const Tensor> inputs) {
  const TraceRange range("step");
  const double lr = optimizer_.lr();
  if (options_.capture) reset_for_other_modes();
  const std::vector<Tensor> results = options_.capture ? graph_(inputs) : update(inputs);
  // No launch has asked, nor could one.
  if (options_.capture && results[1].defined() && rows_of_batch(inputs) == 0)
    check_rows_of_ranks(results[1]);
  if (options_.scheduler) options_.scheduler->step();
  return {.loss = results[0], .grad_norm = options_.max_norm ? results[2] : Tensor(), .lr = lr};
}

/// A graph would go on in the modes, and with the hooks, that it was captured with.
void Step::reset_for_other_modes() {
  std::size_t count = 0;
  bool is_changed = false;
  module_.apply([&](nn::Module& each) {
    const std::uint64_t mode = 2 * each.call_hooks_signature() + (each.is_training() ? 1 : 0);
    if (count == modes_.size()) modes_.push_back(~mode);
    is_changed |= std::exchange(modes_[count++], mode) != mode;
  });
  if (is_changed || count != modes_.size()) graph_.reset();
  modes_.resize(count);
}

// What a StepGraph may capture. Where it throws, what is done of the batch leaves nothing to the
// next.
std::vector<Tensor> Step::update(std::span<const Tensor> inputs) try {
  const OwnLoss own = accumulate_gradients(inputs);
  std::vector<Tensor> results = mean_over_ranks(own);  // which compares the steps of all ranks
  if (options_.max_norm)
    results.push_back(scaler_.clip_and_step(optimizer_, *options_.max_norm));
  else
    scaler_.step(optimizer_);
  scaler_.update();
  if (options_.average) {
    const nn::WholeParameters whole = replica_.whole_parameters();
    options_.average->update();
  }
  optimizer_.zero_grad();
  return results;
} catch (...) {
  optimizer_.zero_grad();
  module_.zero_grad();
  throw;
}

/// Whether ranks wait for each other in forwards: for batches' statistics.
bool has_synchronized_norm(nn::Module& module) {
  bool found = false;
  module.apply([&](nn::Module& each) {
    const auto* const norm = dynamic_cast<const nn::BatchNorm*>(&each);
    found |= norm && norm->group() && norm->group()->size() > 1;
  });
  return found;
}

/// By its own StepGraph, or one around it.
bool Step::is_to_be_captured() const {
  return options_.capture || StepRecording::current() || StepRehearsal::current();
}

/// One at least: the other ranks wait for a backward. Where forwards are collective, all ranks make
/// as many, smaller ones than they would alone, or of no rows.
Step::Parts Step::parts_of(std::int64_t rows) {
  Parts own{.rows = rows};
  if (options_.micro_batch > 0) own.most = std::min(options_.micro_batch, rows);
  if (own.most > 0) own.count = (rows + own.most - 1) / own.most;
  if (replicas() == 1) return own;
  if (replica_.reducer().gathered())
    refuse_in_captured_step("parameters are gathered when they are used (zero_stage 3)",
                            "give zero_stage 2 to capture steps");
  else if (is_to_be_captured() || !(options_.same_micro_batches || has_synchronized_norm(module_)))
    return own;
  const auto most_of_ranks = [this](std::int64_t number, const char* label) {
    return comm::all_reduce_scalar(*replica_.group(), number, comm::ReduceOp::max(), label);
  };
  if (!any_has_parts_)
    any_has_parts_ = most_of_ranks(options_.micro_batch, "micro_batch of a train::Step") > 0;
  if (!*any_has_parts_) return own;
  const std::int64_t count = most_of_ranks(own.count, "number of micro-batches of a train::Step");
  return count == own.count ? own : Parts{.rows = rows, .count = count};
}

/// Gradients end up as those of the mean loss over the batches of all ranks, times the scaler's
/// scale. Returns the mean loss over this rank's.
Step::OwnLoss Step::accumulate_gradients(std::span<const Tensor> inputs) {
  const amp::Autocast mixed = autocast(options_);  // weights are cast once for all parts
  if (options_.autocast) autograd::cast_together(cast_, *options_.autocast);
  const std::int64_t rows = rows_of_batch(inputs);
  LOCKSTEP_CHECK(rows > 0 || replicas() > 1, InvalidArgument, "a step's batch has shape ",
                 inputs[0].shape(), ": a step needs a row at least, on one of its ranks");
  const Parts parts = parts_of(rows);
  if (parts.count > 1) check_rows(inputs);
  MeanOfParts mean;
  std::optional<std::size_t> kind;
  for (std::int64_t i = 0; i < parts.count; ++i) {
    const std::int64_t begin = parts.begin(i), end = parts.begin(i + 1);
    // Gradients of the last part take those of the others along.
    std::optional<NoSync> local;
    if (i + 1 < parts.count) local.emplace(replica_);
    WeightedLoss part = parts.count > 1 ? loss_(rows_of(inputs, begin, end)) : loss_(inputs);
    LOCKSTEP_CHECK(!kind || kind == part.weight.index(), InvalidArgument,
                   "the losses of a batch's parts have weights of several kinds; give all of them "
                   "a number, a tensor, or none");
    kind = part.weight.index();
    if (part.weight.index() == 0 && replicas() > 1 && !is_warned_)
      is_warned_ = warn_of_rows(inputs);
    set_weight(part, end - begin);
    const Tensor scaled = part.loss.defined() ? scaler_.scale(part.loss) : part.loss;
    if (const auto* number = std::get_if<double>(&part.weight))
      replica_.backward(scaled, *number);
    else
      replica_.backward(scaled, std::get<Tensor>(part.weight));
    if (options_.autocast) cast_ = autograd::cast_among(module_.parameters());
    const NoGradGuard no_recording;
    part.loss = part.loss.detach().reshape({}).to(DType::f64);
    // Launches that add nothing to nothing cost time, too.
    if (parts.count == 1) return {.mean = part, .rows = rows, .kind = *kind};
    mean.add(part);
  }
  return {.mean = mean.mean(), .rows = rows, .kind = *kind};
}

/// The mean of the losses of all ranks, f64, each by its weight, and how many rows they have,
/// undefined where there is one rank. Makes sure that all make the same step, by the label of the
/// sum: where they do not, it fails before the weights change.
std::vector<Tensor> Step::mean_over_ranks(const OwnLoss& own) const {
  const NoGradGuard no_recording;
  if (replicas() == 1) return {own.counted_loss(), Tensor()};
  Tensor sums;  // of losses times weights, of weights, and of rows
  if (const auto* number = std::get_if<double>(&own.mean.weight)) {
    sums = full({3}, *number, own.mean.loss.options());
    if (*number > 0) sums[0].mul_(own.mean.loss);
  } else {
    const Tensor& weight = std::get<Tensor>(own.mean.weight);
    sums = full({3}, 1.0, own.mean.loss.options()).mul_(weight);
    sums[0].copy_(times_weight(own.mean.loss, weight));
  }
  // Numbers and tensors count alike, in a unit of the program's.
  const bool counts_rows = own.kind == WeightedLoss(Tensor()).weight.index();
  if (!counts_rows) sums[2].fill_(static_cast<double>(own.rows));
  const Tensor all =
      parallel::all_reduce_async(
          sums, *replica_.group(), comm::ReduceOp::sum(),
          lockstep::detail::concat("loss of a train::Step, weights: ",
                                   counts_rows ? "rows, " : "WeightedLoss, ", compared_))
          .wait();
  if (own.rows == 0 && !StepRecording::current()) check_rows_of_ranks(all[2]);
  return {of_weight(all[0], all[1]), all[2]};
}

std::string Step::parameter_beside_module() const {
  const auto beside = parameters_beside(optimizer_, replica_);
  if (beside.empty()) return {};
  const std::string& name = beside.front().name;
  return name.empty() ? lockstep::detail::concat("of shape ", beside.front().parameter.shape())
                      : name;
}

void Step::add_to(checkpoint::Manager& checkpoints) const {
  checkpoints.add("model", checkpoint::state_of(module_, replica_));
  checkpoints.add("optimizer", checkpoint::state_of(optimizer_, replica_));
  if (options_.scheduler) checkpoints.add("scheduler", *options_.scheduler);
  if (options_.scaler) checkpoints.add("scaler", checkpoint::state_of(*options_.scaler, replica_));
  if (options_.average)
    checkpoints.add("average", checkpoint::state_of(*options_.average, replica_));
}

Step::EvaluationScope::EvaluationScope(Step& step)
    : autocast_(autocast(step.options_)), whole_(step.replica_.whole_parameters()) {
  optim::WeightAverage* const average = step.options_.average;
  if (average && average->updates() > 0) averaged_.emplace(average->swap_in());
  step.replica_.send_buffers();  // and their averages
  step.module_.apply([this](nn::Module& each) { modes_.emplace_back(&each, each.is_training()); });
  step.module_.eval();
}

Step::EvaluationScope::~EvaluationScope() {
  for (const auto& [module, is_training] : std::views::reverse(modes_)) module->train(is_training);
}

}  // namespace lockstep::train
