#include "lockstep/train/periodic_averaging.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/communicator_backend.hpp"
#include "core/exact_number.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/parallel/agreement.hpp"
#include "lockstep/parallel/writable_buffer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "optim/gradients.hpp"
#include "optim/state_format.hpp"
#include "parallel/owner_number.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t alignment = 16;  // elements from which a tensor begins in an array

std::size_t index_in(const optim::Optimizer& optimizer, const std::string& name,
                     const Tensor& parameter, const std::string& averaging) {
  const auto states = optimizer.parameter_states();
  const auto found = std::ranges::find_if(
      states, [&](const auto& state) { return state.parameter.is_same(parameter); });
  LOCKSTEP_CHECK(
      found != states.end(), InvalidArgument, averaging, ": parameter ", name,
      " trains, but the optimizer does not have it; give the optimizer all parameters of "
      "the DistributedDataParallel, or freeze it before the model is wrapped");
  return static_cast<std::size_t>(found - states.begin());
}

void check_same_options(Communicator& group, const std::string& name, const DiLoCoOptions& o) {
  const std::pair<std::string, std::string> settings[] = {
      {"what averages parameters", name},
      {"sync_every", std::to_string(o.sync_every)},
      {"outer_lr", lockstep::detail::exact(o.outer_lr)},
      {"outer_momentum", lockstep::detail::exact(o.outer_momentum)},
      {"fragments", std::to_string(o.fragments)},
      {"fragment_sync_delay", std::to_string(o.fragment_sync_delay)},
      {"fragment_update_alpha", lockstep::detail::exact(o.fragment_update_alpha)}};
  parallel::check_same_settings(group, settings);
}

}  // namespace

void DiLoCoOptions::check() const {
  LOCKSTEP_CHECK(sync_every >= 1, InvalidArgument, "sync_every: ", sync_every,
                 " steps from one exchange to the next; at least 1");
  LOCKSTEP_CHECK(fragments >= 1 && fragments <= sync_every, InvalidArgument,
                 "fragments: ", fragments, " that are exchanged in turns within ", sync_every,
                 " steps; from 1 to sync_every");
  LOCKSTEP_CHECK(fragment_sync_delay >= 0 && fragment_sync_delay < sync_every, InvalidArgument,
                 "fragment_sync_delay: ", fragment_sync_delay, " steps, with sync_every ",
                 sync_every, "; not negative, and below it");
  LOCKSTEP_CHECK(fragment_update_alpha >= 0 && fragment_update_alpha < 1, InvalidArgument,
                 "fragment_update_alpha: ", fragment_update_alpha, "; must be in [0, 1)");
}

PeriodicAveraging::PeriodicAveraging(std::string name, nn::ReplicatedModule& replica,
                                     optim::Optimizer& optimizer, const DiLoCoOptions& options,
                                     bool has_outer)
    : name_(std::move(name)),
      replica_(replica),
      optimizer_(optimizer),
      group_(replica.group()),
      options_(options),
      follows_parameters_(has_outer),
      self_(std::make_shared<PeriodicAveraging*>(this)) {
  const NoGradGuard no_recording;
  check_same_options(*group_, name_, options_);
  options_.check();
  replica_.check_may_keep_gradients(name_);
  make_fragments(replica_.trained_parameters(), replica_.module().named_buffers());
  if (has_outer) {
    NamedTensors outer;
    for (Fragment& fragment : fragments_)
      for (Entry& entry : fragment.entries) {
        if (!entry.state) continue;
        entry.outer = wide_value(entry).clone().set_requires_grad();
        outer.emplace_back(entry.name, entry.outer);
      }
    std::vector<Tensor> values;
    for (const auto& [key, value] : outer) values.push_back(value);
    parallel::broadcast_tensors(*group_, values);
    outer_.emplace(outer, optim::SGDOptions{.lr = options_.outer_lr,
                                            .momentum = options_.outer_momentum,
                                            .nesterov = options_.outer_momentum > 0});
  }
  replica_.keep_gradients(name_, self_, [this] { begin(); });
  number_ = parallel::agree_on_number(*group_);
  hook_ = optimizer_.register_step_post_hook([this] { after_step(); });
  group_->implementation().before_leaving(number_, [self = std::weak_ptr(self_)] {
    if (const auto here = self.lock()) (*here)->declare_end();
  });
}

/// The outer parameters become those of this rank.
void PeriodicAveraging::take_parameters() {
  const NoGradGuard no_recording;
  for (const Fragment& fragment : fragments_)
    for (const Entry& entry : fragment.entries)
      if (entry.outer.defined()) Tensor(entry.outer).detach().copy_(wide_value(entry));
}

/// The model may have been loaded since this was made, and this not.
void PeriodicAveraging::begin() {
  if (!follows_parameters_) return;
  refuse_in_captured_step(name_ + " exchanges parameters before the first step,",
                          "such steps run eagerly");
  take_parameters();
  const NoGradGuard no_recording;
  std::vector<Tensor> values;
  for (const Fragment& fragment : fragments_)
    for (const Entry& entry : fragment.entries)
      if (entry.outer.defined()) values.push_back(entry.outer.detach());
  parallel::broadcast_tensors(*group_, values);
  follows_parameters_ = false;
}

PeriodicAveraging::~PeriodicAveraging() {
  optimizer_.remove_step_post_hook(hook_);
  group_->implementation().before_leaving(number_, nullptr);
  declare_end();
}

/// What no exchange carries to the other ranks. One that unwinds ends otherwise.
void PeriodicAveraging::declare_end() noexcept {
  comm::CommunicatorBackend& group = group_->implementation();
  if (group.size() == 1 || !group.options().check_signatures) return;
  if (std::uncaught_exceptions() > 0 || std::exchange(declared_, true)) return;
  try {
    group.declare(number_, detail::concat(name_, " ended after ", step_, " steps"));
  } catch (...) {
    // No host memory is left: whoever needs some next says so.
  }
}

void PeriodicAveraging::add(Fragment& fragment, Entry entry) const {
  const DType wide = optim::state_dtype(entry.tensor.dtype());
  std::size_t array = 0;
  while (array < fragment.dtypes.size() && fragment.dtypes[array] != wide) ++array;
  if (array == fragment.dtypes.size()) {
    fragment.dtypes.push_back(wide);
    fragment.sizes.push_back(0);
  }
  entry.array = array;
  entry.offset = fragment.sizes[array];
  fragment.sizes[array] += (entry.tensor.numel() + alignment - 1) / alignment * alignment;
  fragment.entries.push_back(std::move(entry));
}

/// Fragments of consecutive parameters; buffers go with the first.
void PeriodicAveraging::make_fragments(const NamedTensors& parameters,
                                       const NamedTensors& buffers) {
  const auto count = static_cast<std::size_t>(options_.fragments);
  LOCKSTEP_CHECK(count <= parameters.size(), InvalidArgument, "fragments: ", count,
                 " of a model with ", parameters.size(), " parameters that train");
  fragments_.resize(count);
  std::int64_t total = 0, before = 0;
  for (const auto& [name, parameter] : parameters) total += parameter.numel();
  std::size_t at = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    const bool is_full = before * options_.fragments >= total * static_cast<std::int64_t>(at + 1);
    const bool needs_rest = parameters.size() - i == count - 1 - at;
    if (at + 1 < count && !fragments_[at].entries.empty() && (is_full || needs_rest)) ++at;
    before += parameter.numel();
    add(fragments_[at],
        {.name = name, .tensor = parameter, .state = index_in(optimizer_, name, parameter, name_)});
  }
  for (const auto& [name, buffer] : buffers)
    if (is_floating(buffer.dtype())) add(fragments_[0], {.name = name, .tensor = buffer});
}

/// Undefined where a tensor has none.
Tensor PeriodicAveraging::master_of(const Entry& entry) const {
  return entry.state ? optimizer_.parameter_states()[*entry.state].master : Tensor();
}

Tensor PeriodicAveraging::wide_value(const Entry& entry) const {
  const Tensor master = master_of(entry);
  return master.defined() ? master
                          : entry.tensor.detach().to(optim::state_dtype(entry.tensor.dtype()));
}

/// @param kept how much of what is there stays.
void PeriodicAveraging::write(const Entry& entry, const Tensor& value, double kept) const {
  const Tensor mixed = kept == 0 ? value : wide_value(entry) * kept + value * (1 - kept);
  if (Tensor master = master_of(entry); master.defined()) master.copy_(mixed);
  Tensor(entry.tensor).detach().copy_(mixed);  // rounded alike, so that the master copy stays
}

void PeriodicAveraging::after_step() {
  refuse_in_captured_step(name_ + " exchanges parameters every few steps,",
                          "such steps run eagerly");
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard no_casts;
  ++step_;
  follows_parameters_ = false;
  for (std::size_t f = 0; f < fragments_.size(); ++f)
    if (fragments_[f].is_pending && step_ >= fragments_[f].started + options_.fragment_sync_delay)
      finish(f, options_.fragment_update_alpha);
  for (std::size_t f = 0; f < fragments_.size(); ++f) {
    const std::int64_t turn = options_.sync_every * static_cast<std::int64_t>(f + 1);
    if ((step_ - turn / options_.fragments) % options_.sync_every != 0) continue;
    start(f);
    if (options_.fragment_sync_delay == 0) finish(f, options_.fragment_update_alpha);
  }
}

/// What all ranks must have in common where they exchange parameters.
std::string PeriodicAveraging::describe(std::size_t fragment) const {
  std::string text = detail::concat(name_, ", fragment ", fragment, " after step ", step_, " and ",
                                    replica_.reducer().next_forward().step - 1, " forwards, lr");
  for (std::size_t group = 0; group < optimizer_.group_count(); ++group)
    text += " " + lockstep::detail::exact(optimizer_.lr(group));
  return text;
}

/// For averages of a fragment's entries.
std::vector<Tensor> PeriodicAveraging::empty_arrays(const Fragment& fragment) const {
  std::vector<Tensor> arrays;
  for (std::size_t a = 0; a < fragment.dtypes.size(); ++a)
    arrays.push_back(
        zeros({fragment.sizes[a]}, {.dtype = fragment.dtypes[a], .device = group_->device()}));
  return arrays;
}

Tensor PeriodicAveraging::place_of(const Entry& entry, const std::vector<Tensor>& arrays) {
  return arrays[entry.array]
      .slice(0, entry.offset, entry.offset + entry.tensor.numel())
      .reshape(entry.tensor.shape());
}

void PeriodicAveraging::start(std::size_t number) {
  Fragment& fragment = fragments_[number];
  // A run that goes on with another delay, or turns at other steps, may have it on its way.
  if (fragment.is_pending) finish(number, options_.fragment_update_alpha);
  const std::string label = describe(number);
  fragment.arrays = empty_arrays(fragment);
  for (const Entry& entry : fragment.entries) {
    Tensor place = place_of(entry, fragment.arrays);
    const Tensor value = wide_value(entry);
    place.copy_(entry.outer.defined() ? entry.outer.detach() - value : value);
  }
  for (std::size_t a = 0; a < fragment.arrays.size(); ++a) {
    const Tensor& array = fragment.arrays[a];
    bytes_reduced_ += array.nbytes();
    comm::CollectiveOptions options{.label = label};
    options.id = {
        .owner = number_, .step = static_cast<std::uint64_t>(step_), .part = 2 * number + a};
    fragment.works.emplace_back(
        group_->all_reduce(parallel::writable_buffer(array), comm::ReduceOp::average(), options),
        array);
  }
  fragment.started = step_;
  fragment.is_pending = true;
}

void PeriodicAveraging::finish(std::size_t number, double kept) {
  Fragment& fragment = fragments_[number];
  for (parallel::TensorWork& work : fragment.works) work.wait();
  const auto average_of = [&](const Entry& entry) { return place_of(entry, fragment.arrays); };
  if (outer_) {
    for (Entry& entry : fragment.entries)
      if (entry.outer.defined()) entry.outer.set_grad(average_of(entry));
    outer_->step();
    outer_->zero_grad();
  }
  for (const Entry& entry : fragment.entries)
    if (entry.outer.defined())
      write(entry, entry.outer.detach(), kept);
    else
      write(entry, average_of(entry), 0);
  fragment.works.clear();
  fragment.arrays.clear();
  fragment.is_pending = false;
}

void PeriodicAveraging::synchronize() {
  refuse_in_captured_step(name_ + "::synchronize", "call it between steps");
  for (const Fragment& fragment : fragments_)
    for (const Entry& entry : fragment.entries)
      optim::check_holds_weights(entry.tensor, name_ + "::synchronize");
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard no_casts;
  parallel::check_same_value(*group_, "the number of steps of " + name_,
                             static_cast<std::uint64_t>(step_));
  begin();
  for (std::size_t f = 0; f < fragments_.size(); ++f) {
    if (fragments_[f].is_pending) finish(f, 0);
    if (fragments_[f].started != step_) {
      start(f);
      finish(f, 0);
    }
    for (const Entry& entry : fragments_[f].entries)
      if (entry.outer.defined()) write(entry, entry.outer.detach(), 0);
  }
}

}  // namespace lockstep
