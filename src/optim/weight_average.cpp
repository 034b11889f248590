#include "lockstep/optim/weight_average.hpp"

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "autograd/held_memory.hpp"
#include "backend/backend.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "optim/state_format.hpp"
#include "optim/state_reader.hpp"
#include "runtime/step_recording.hpp"
#include "tensor/background_reads.hpp"

namespace lockstep::optim {

WeightAverage::WeightAverage(const ParameterList& parameters, const WeightAverageOptions& options)
    : parameters_(parameters.entries()), options_(options) {
  const NoGradGuard no_recording;
  LOCKSTEP_CHECK(!parameters_.empty(), InvalidArgument, "a WeightAverage was given no parameters");
  if (options.decay)
    LOCKSTEP_CHECK(*options.decay >= 0 && *options.decay <= 1, InvalidArgument,
                   "WeightAverage: a decay of ", *options.decay, "; it must be in [0, 1]");
  std::set<std::string_view> names;
  for (const auto& [name, parameter] : parameters_) {
    LOCKSTEP_CHECK(name.empty() || names.insert(name).second, InvalidArgument,
                   "WeightAverage: two parameters of the name \"", name,
                   "\"; named_parameters(prefix) tells several modules' apart");
    LOCKSTEP_CHECK(is_floating(parameter.dtype()) && parameter.is_contiguous(), InvalidArgument,
                   "WeightAverage: \"", name, "\" is ", parameter.dtype(), " of shape ",
                   parameter.shape(), " and strides ", parameter.strides(),
                   "; it must be contiguous and floating");
    LOCKSTEP_CHECK(autograd::share_of(parameter) != autograd::GradientShare::part, InvalidArgument,
                   "WeightAverage: \"", name,
                   "\" is this rank's shard of a parameter, which averages could not be swapped "
                   "into on all ranks; give it the module's parameters");
    are_buffers_.push_back(!parameter.requires_grad());
    averages_.push_back(zeros(parameter.shape(), {.dtype = state_dtype(parameter.dtype()),
                                                  .device = parameter.device()}));
  }
}

bool WeightAverage::is_swapped_in() const { return held_ && held_->holds_any(); }

void WeightAverage::check_not_swapped() const {
  LOCKSTEP_CHECK(!is_swapped_in(), InvalidArgument,
                 "WeightAverage: the parameters hold their averages; swap_out() first");
  check_not_held();
}

/// Averages of averages would be made, and weights be lost where two go out in another order.
void WeightAverage::check_not_held() const {
  for (const auto& [name, parameter] : parameters_)
    LOCKSTEP_CHECK(!autograd::HeldMemory::has(parameter), InvalidArgument,
                   "WeightAverage: parameter ", name,
                   " holds the averages of another WeightAverage; swap_out() those first");
}

/// The share of a value in an average that decays is the same with each launch.
void WeightAverage::join_recording(StepRecording& recording) {
  if (updates_ == 0 || !options_.decay)
    refuse_in_captured_step("a WeightAverage whose updates differ",
                            "make the first update before; without decay, update after the step");
  std::vector<const void*> places;
  for (const Tensor& average : averages_) places.push_back(average.data_ptr());
  recording.require([this, places]() -> std::string {
    for (std::size_t i = 0; i < places.size(); ++i)
      if (averages_[i].data_ptr() != places[i])
        return "averages of weights were loaded since the step was captured";
    return {};
  });
  recording.before_launch(
      [this] {
        check_not_swapped();
        for (const Tensor& average : averages_) wait_for_reads(average);
        ++updates_;
      },
      [this] { --updates_; });
}

void WeightAverage::update() {
  check_not_swapped();
  StepRecording* const recording = StepRecording::current();
  if (recording) join_recording(*recording);
  const double nth = 1.0 / static_cast<double>(updates_ + 1);
  const double share = updates_ == 0 ? 1.0 : options_.decay ? 1.0 - *options_.decay : nth;
  std::vector<bool> done(parameters_.size());
  for (std::size_t first = 0; first < parameters_.size(); ++first) {
    if (done[first]) continue;
    const Device device = averages_[first].device();
    std::vector<ArrayView> averages, values;
    for (std::size_t i = first; i < parameters_.size(); ++i) {
      const auto& [name, parameter] = parameters_[i];
      LOCKSTEP_CHECK(parameter.device() == averages_[i].device() &&
                         state_dtype(parameter.dtype()) == averages_[i].dtype(),
                     InvalidArgument, "WeightAverage: \"", name, "\" has become ",
                     parameter.dtype(), " on ", parameter.device(), "; its average is ",
                     averages_[i].dtype(), " on ", averages_[i].device(), ". Make a new one");
      if (parameter.device() != device) continue;
      done[i] = true;
      wait_for_reads(averages_[i]);
      averages.push_back(averages_[i].view());
      values.push_back(parameter.view());
    }
    backend::of(device).multi_tensor.average(
        {.averages = averages, .values = values, .share = share}, current_stream(device));
  }
  if (!recording) ++updates_;
}

WeightAverage::Swapped WeightAverage::swap_in() {
  LOCKSTEP_CHECK(!is_swapped_in(), InvalidArgument,
                 "WeightAverage: the parameters hold their averages already");
  LOCKSTEP_CHECK(updates_ > 0, InvalidArgument,
                 "WeightAverage: there is no average before the first update()");
  check_not_held();
  const NoGradGuard no_recording;
  std::vector<Tensor> parameters;
  for (const auto& [name, parameter] : parameters_) parameters.push_back(parameter);
  held_ = std::make_shared<autograd::HeldMemory>(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(averages_[i]);
  return Swapped(held_);
}

void WeightAverage::swap_out() {
  if (const auto held = std::exchange(held_, nullptr)) held->bring_back();
}

WeightAverage::Swapped::~Swapped() {
  if (!held_) return;
  try {
    held_->bring_back();
  } catch (const std::exception&) {  // the device has failed, and says so to whoever uses it next
  }
}

std::string WeightAverage::key_of(std::size_t parameter) const {
  const std::string& name = parameters_[parameter].first;
  return name.empty() ? std::to_string(parameter) : name;
}

std::vector<std::string> WeightAverage::keys_of_buffers() const {
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (are_buffers_[i]) keys.push_back(key_of(i));
  return keys;
}

NamedTensors WeightAverage::state_dict() const {
  NamedTensors state;
  for (std::size_t i = 0; i < averages_.size(); ++i) state.emplace_back(key_of(i), averages_[i]);
  state.emplace_back("n_averaged", tensor(updates_));
  return state;
}

void WeightAverage::load_state_dict(const NamedTensors& state) {
  const NoGradGuard no_recording;
  StateReader reader(state, "averages of weights");
  std::vector<Tensor> loaded;
  for (std::size_t i = 0; i < averages_.size(); ++i)
    loaded.push_back(reader.take(key_of(i), averages_[i].shape(), averages_[i].dtype()));
  const auto updates = static_cast<std::int64_t>(reader.number("n_averaged", DType::i64, 0));
  if (updates < 0) reader.fault() << "n_averaged: " << updates << "; must not be negative";
  reader.finish();
  for (std::size_t i = 0; i < averages_.size(); ++i)
    averages_[i] = loaded[i].to(averages_[i].device()).clone();
  updates_ = updates;
}

}  // namespace lockstep::optim
