#include "lockstep/amp/grad_scaler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "backend/backend.hpp"
#include "core/exact_number.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "memory/step_rehearsal.hpp"
#include "optim/gradients.hpp"
#include "runtime/step_recording.hpp"
#include "tensor/write_note.hpp"

namespace lockstep::amp {
namespace {

using detail::exact;

// Skipped steps are looked at that often, and only that long after they were asked for, so that the
// host does not wait for a GPU.
struct Look {
  std::uint64_t every = 8, after = 4;
};
/// Where few steps end the training, more often: runs of them might be over by then.
Look look_for(std::int64_t max_skipped_steps) {
  const std::uint64_t every =
      std::min<std::uint64_t>(8, static_cast<std::uint64_t>(max_skipped_steps));
  return {.every = every, .after = every / 2};
}

constexpr double no_limit = std::numeric_limits<double>::infinity();

const void* place_of(const Tensor& found) { return found.defined() ? found.data_ptr() : nullptr; }

bool is_usable_scale(double scale) { return std::isfinite(scale) && scale > 0; }

// @throws InvalidArgument if there are no gradients, or they are not on the loss' device. Ranks
// that share gradients out have none for an optimizer before these are averaged: where backwards
// have only added them up, that is what it says.
void check_gradients(const optim::Gradients& gradients, const optim::Optimizer& optimizer,
                     Device of_loss) {
  if (gradients.tensors().empty())
    std::ranges::for_each(optimizer.parameters(), optim::check_update);
  LOCKSTEP_CHECK(!gradients.empty(), InvalidArgument,
                 "GradScaler: the optimizer's parameters have no gradients; call "
                 "scaler.scale(loss).backward() before");
  LOCKSTEP_CHECK(gradients.device() == of_loss, InvalidArgument, "GradScaler: gradients on ",
                 gradients.device(), " of a loss on ", of_loss, "; use a scaler for each device");
}

}  // namespace

void GradScalerOptions::check() const {
  LOCKSTEP_CHECK(is_usable_scale(init_scale), InvalidArgument, "GradScaler: init_scale is ",
                 init_scale, "; it must be finite and above 0");
  LOCKSTEP_CHECK(growth_factor > 1 && std::isfinite(growth_factor), InvalidArgument,
                 "GradScaler: growth_factor is ", growth_factor, "; it must be above 1");
  LOCKSTEP_CHECK(backoff_factor > 0 && backoff_factor < 1, InvalidArgument,
                 "GradScaler: backoff_factor is ", backoff_factor,
                 "; it must be above 0 and below 1");
  LOCKSTEP_CHECK(growth_interval > 0 && max_skipped_steps > 0, InvalidArgument,
                 "GradScaler: growth_interval ", growth_interval, " and max_skipped_steps ",
                 max_skipped_steps, " must be above 0");
}

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  options_.check();
  place(options_.init_scale, 0, 0, cpu);
}

void GradScaler::place(double scale, std::int64_t finite_steps, std::int64_t skipped_steps,
                       Device device) {
  const TensorOptions counter{.dtype = DType::i64, .device = device};
  scale_ = full({}, scale, {.dtype = DType::f64, .device = device});
  finite_steps_ = full({}, finite_steps, counter);
  skipped_steps_ = full({}, skipped_steps, counter);
}

void GradScaler::move_to(Device device) {
  if (!std::exchange(placed_, true)) {
    const NoGradGuard no_recording;
    place(scale_.item(), finite_steps_.item<std::int64_t>(), skipped_steps_.item<std::int64_t>(),
          device);
  }
  LOCKSTEP_CHECK(scale_.device() == device, InvalidArgument, "GradScaler: a loss on ", device,
                 " after one on ", scale_.device(), "; use a scaler for each device");
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  LOCKSTEP_CHECK(is_floating(loss.dtype()), InvalidArgument, "GradScaler: a loss of dtype ",
                 loss.dtype(), "; it must be floating");
  move_to(loss.device());
  const DType dtype = loss.dtype() == DType::f64 ? DType::f64 : DType::f32;
  // A copy of its own: the next update must not change what this backward reads.
  ++losses_;
  const Tensor factor =
      no_grad([&] { return dtype == DType::f64 ? scale_.clone() : scale_.to(dtype); });
  return loss.to(dtype) * factor;
}

void GradScaler::check_scaled() const {
  LOCKSTEP_CHECK(placed_, InvalidArgument,
                 "GradScaler: no loss was scaled yet; backward from scaler.scale(loss)");
}

/// In a step that is captured, each launch finds and leaves what the capture did.
void GradScaler::join_recording() {
  StepRecording* const recording = StepRecording::on(scale_.device());
  if (!recording || !recording->meets(this)) [[likely]]
    return;
  // What another graph has found lies where its next launch puts it.
  for (const Seen& each : seen_)
    LOCKSTEP_CHECK(!each.found_inf.defined() || each.is_of_launch, Unsupported,
                   "a loss scaler goes on in a captured step from an unscale_ or step() outside of "
                   "it, whose findings no launch would see: call all of them within, or none");
  const auto seen = std::make_shared<std::vector<Seen>>(seen_);
  recording->when_abandoned([this, seen] { seen_ = *seen; });
  recording->when_captured([this, seen] {
    for (Seen& each : seen_) each.is_of_launch = true;
    *seen = seen_;
  });
  recording->after_launch([this, seen] { seen_ = *seen; });
  recording->require(
      [this, how = describe(), place = scale_.data_ptr(), before = seen_]() -> std::string {
        const auto is_alike = [](const Seen& a, const Seen& b) {
          return place_of(a.found_inf) == place_of(b.found_inf);
        };
        if (how == describe() && place == scale_.data_ptr() &&
            std::ranges::equal(before, seen_, is_alike))
          return {};
        return "a loss scaler was changed since the step was captured";
      });
}

GradScaler::Seen& GradScaler::find(const optim::Optimizer& optimizer) {
  join_recording();
  const auto found = std::ranges::find(seen_, &optimizer, &Seen::optimizer);
  if (found != seen_.end()) return *found;
  return seen_.emplace_back(Seen{.optimizer = &optimizer, .found_inf = {}});
}

Tensor GradScaler::unscale_(optim::Optimizer& optimizer) {
  if (!options_.enabled) return {};
  check_scaled();
  Seen& seen = find(optimizer);
  LOCKSTEP_CHECK(!seen.unscaled && !seen.stepped, InvalidArgument, "GradScaler: unscale_ ",
                 seen.stepped ? "after step" : "a second time",
                 " for an optimizer since the last update()");
  const NoGradGuard no_recording;
  const optim::Gradients gradients("GradScaler", optimizer.parameters(),
                                   {options_.group, {}, "GradScaler::unscale_"});
  check_gradients(gradients, optimizer, scale_.device());
  for (const Tensor& gradient : gradients.tensors())
    LOCKSTEP_CHECK(gradient.dtype() != DType::f16, InvalidArgument,
                   "GradScaler: unscale_ of f16 gradients, in which small ones would vanish; keep "
                   "parameters in f32 under amp::Autocast, or leave unscale_ out: step() takes the "
                   "scale off while it computes in f32");
  const auto measured = optim::measure(gradients.divide(scale_), {}, no_limit);
  seen.found_inf = measured.found_inf;
  seen.unscaled = true;
  return measured.norm;
}

void GradScaler::step(optim::Optimizer& optimizer) {
  if (!options_.enabled) return optimizer.step();
  take_step(optimizer, std::nullopt, {});
}

Tensor GradScaler::clip_and_step(optim::Optimizer& optimizer, double max_norm,
                                 std::span<const Tensor> replicated) {
  LOCKSTEP_CHECK(max_norm >= 0, InvalidArgument, "GradScaler: a largest norm of ", max_norm,
                 "; it must not be negative");
  return take_step(optimizer, max_norm, replicated);
}

/// Without a limit, gradients that were measured already are not again.
Tensor GradScaler::take_step(optim::Optimizer& optimizer, std::optional<double> limit,
                             std::span<const Tensor> replicated) {
  const bool enabled = options_.enabled;
  if (enabled) check_scaled();
  Seen passed{.optimizer = &optimizer, .found_inf = {}};
  Seen& seen = enabled ? find(optimizer) : passed;
  LOCKSTEP_CHECK(!seen.stepped, InvalidArgument,
                 "GradScaler: step a second time for an optimizer since the last update()");
  const NoGradGuard no_recording;
  optim::MeasuredGradients measured;
  if (!seen.unscaled || limit) {
    const std::vector<Tensor> parameters = optimizer.parameters();
    const optim::Gradients gradients("GradScaler", parameters,
                                     {options_.group, replicated, purpose_of_step(seen, limit)});
    if (limit && !std::isinf(*limit) && !options_.group)
      optim::warn_of_own_gradients("GradScaler::clip_and_step", parameters);
    if (enabled) check_gradients(gradients, optimizer, scale_.device());
    if (gradients.empty()) {
      optimizer.step();
      return zeros({}, {.dtype = DType::f64});
    }
    const bool is_scaled = enabled && !seen.unscaled;
    measured = optim::measure(gradients.square_sum(), is_scaled ? scale_ : Tensor(),
                              limit.value_or(no_limit));
  }
  if (enabled && !seen.unscaled) seen.found_inf = measured.found_inf;
  optimizer.step({.scale = measured.divisor,
                  .found_inf = seen.found_inf,
                  .how = describe(limit) + (enabled && losses_ == 0 ? ", no loss scaled" : "")});
  // What the optimizer's hooks did may have moved it, or ended it by an update.
  if (const auto now = std::ranges::find(seen_, &optimizer, &Seen::optimizer); now != seen_.end())
    now->stepped = true;
  return measured.norm;
}

/// What the gradients are summed for, which ranks must do alike.
std::string GradScaler::purpose_of_step(const Seen& seen, std::optional<double> limit) const {
  if (!options_.group) return {};
  return detail::concat("GradScaler::", limit ? "clip_and_step to " + exact(*limit) : "step",
                        options_.enabled && !seen.unscaled ? "" : " of unscaled gradients");
}

/// What the ranks must agree on, for whoever compares their updates.
std::string GradScaler::describe(std::optional<double> limit) const {
  std::string how;
  if (options_.enabled)
    how = detail::concat("loss scale from ", exact(options_.init_scale), " by ",
                         exact(options_.growth_factor), " and ", exact(options_.backoff_factor),
                         " every ", options_.growth_interval, change_);
  if (limit) how += detail::concat(how.empty() ? "" : ", ", "norm up to ", exact(*limit));
  return how;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  if (new_scale) {
    refuse_in_captured_step("GradScaler::update to a given scale", "call it between steps");
    LOCKSTEP_CHECK(is_usable_scale(*new_scale), InvalidArgument, "GradScaler: a new scale of ",
                   *new_scale, "; it must be finite and above 0");
    no_grad([&] { scale_.fill_(*new_scale); });
    seen_.clear();
    losses_ = 0;
    note_change("set to " + exact(*new_scale));
    return;
  }
  check_scaled();
  const NoGradGuard no_recording;
  Tensor found_inf;
  for (const Seen& seen : seen_) {
    if (!seen.found_inf.defined()) continue;
    if (StepRehearsal* const rehearsal = StepRehearsal::current())  // as join_recording asks of it
      rehearsal->note_watched(seen.found_inf.impl().storage->owner());
    found_inf = found_inf.defined() ? maximum(found_inf, seen.found_inf) : seen.found_inf;
  }
  LOCKSTEP_CHECK(found_inf.defined(), InvalidArgument,
                 "GradScaler: update() without step(optimizer) since the last one");
  backend::of(scale_.device())
      .multi_tensor.update_loss_scale({.scale = scale_.view(),
                                       .finite_steps = finite_steps_.view(),
                                       .skipped_steps = skipped_steps_.view(),
                                       .found_inf = found_inf.view(),
                                       .rule = {.growth_factor = options_.growth_factor,
                                                .backoff_factor = options_.backoff_factor,
                                                .growth_interval = options_.growth_interval}},
                                      current_stream(scale_.device()));
  for (const Tensor& changed : {scale_, finite_steps_, skipped_steps_}) note_write(changed);
  seen_.clear();
  losses_ = 0;
  if (StepRecording* recording = StepRecording::on(scale_.device()))
    recording->after_launch([this] { count_update(); });
  else
    count_update();
}

void GradScaler::count_update() {
  ++updates_;
  check_skipped();
}

/// By the number of updates alone, so that all ranks find it out in the same one.
void GradScaler::check_skipped() {
  const Look look = look_for(options_.max_skipped_steps);
  if (updates_ % look.every == 0) skipped_.emplace(skipped_steps_);
  if (!skipped_ || updates_ % look.every != look.after) return;
  const double skipped = skipped_->item();
  skipped_.reset();
  LOCKSTEP_CHECK(skipped < static_cast<double>(options_.max_skipped_steps), GradientOverflow,
                 "the last ", skipped,
                 " steps were skipped, as their gradients were not finite at "
                 "any loss scale from ",
                 options_.init_scale, " down to ", get_scale(),
                 "; look for the first op that gives inf or NaN, lower the learning rate, or train "
                 "in bf16 or f32");
}

double GradScaler::get_scale() const { return options_.enabled ? scale_.item() : 1.0; }

namespace {

/// The options that a checkpoint keeps.
template <class Options, class Visit>
void visit_saved(Options& options, const Visit& visit) {
  visit("growth_factor", options.growth_factor);
  visit("backoff_factor", options.backoff_factor);
  visit("growth_interval", options.growth_interval);
}

}  // namespace

NamedTensors GradScaler::state_dict() const {
  const NoGradGuard no_recording;
  NamedTensors state{{"scale", scale_.to(cpu).clone()},
                     {"growth_tracker", finite_steps_.to(cpu).clone()},
                     {"skipped_steps", skipped_steps_.to(cpu).clone()}};
  visit_saved(options_, [&](const char* name, auto value) {
    state.emplace_back(name, full({}, static_cast<double>(value), {.dtype = DType::f64}));
  });
  return state;
}

void GradScaler::load_state_dict(const NamedTensors& state) {
  std::map<std::string, double> values;
  for (const auto& [name, tensor] : state) {
    LOCKSTEP_CHECK(tensor.numel() == 1, InvalidArgument, "GradScaler: ", name, " has shape ",
                   tensor.shape(), "; it must be a number");
    values[name] = tensor.item();
  }
  const auto take = [&](const char* name) {
    const auto found = values.find(name);
    LOCKSTEP_CHECK(found != values.end(), InvalidArgument, "GradScaler: the state has no ", name);
    return values.extract(found).mapped();
  };
  GradScalerOptions options = options_;
  const double scale = take("scale");
  const double finite_steps = take("growth_tracker"), skipped_steps = take("skipped_steps");
  visit_saved(options,
              [&]<class T>(const char* name, T& value) { value = static_cast<T>(take(name)); });
  LOCKSTEP_CHECK(values.empty(), InvalidArgument, "GradScaler: the state has an unknown ",
                 values.begin()->first);
  options.check();
  LOCKSTEP_CHECK(is_usable_scale(scale) && finite_steps >= 0 && skipped_steps >= 0, InvalidArgument,
                 "GradScaler: a saved scale of ", scale, ", ", finite_steps, " steps made and ",
                 skipped_steps,
                 " skipped; the scale must be finite and above 0, the others not negative");
  place(scale, static_cast<std::int64_t>(finite_steps), static_cast<std::int64_t>(skipped_steps),
        scale_.device());
  options_ = options;
  seen_.clear();
  skipped_.reset();
  note_change(detail::concat("loaded as ", exact(scale), " with ", exact(finite_steps),
                             " steps made and ", exact(skipped_steps), " skipped"));
}

void GradScaler::note_change(const std::string& how) {
  change_ = detail::concat(", change ", ++changes_, " after update ", updates_, ": ", how);
}

}  // namespace lockstep::amp
