#include "train/captured_step.hpp"

#include <algorithm>

#include "backend/backend.hpp"
#include "core/current_message.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/tensor/storage.hpp"

namespace lockstep::train {
namespace {

// A capture that finds too little memory, or a graph that fits no more, is made anew so often.
constexpr int most_tries = 3;

/// What comes on `later` from now on waits for what is on `earlier` now.
void order(StreamRef earlier, StreamRef later) {
  Event mark(earlier.device);
  mark.record(earlier);
  mark.wait(later);
}

}  // namespace

StepInputs::StepInputs(std::span<const Tensor> inputs)
    : grad_(grad_enabled()), autocast_(autograd::thread_modes.autocast_dtype) {
  for (const Tensor& input : inputs)
    forms_.push_back({input.shape(), input.dtype(), input.is_channels_last()});
}

std::string refusal_of(std::span<const Tensor> inputs, Device device) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    if (!input.defined()) return detail::concat("input ", i, " is undefined");
    if (input.device() != device)
      return detail::concat("input ", i, " is on ", input.device(), ", the step computes on ",
                            device, "; bring it there before");
    if (input.requires_grad())
      return detail::concat("input ", i, " requires a gradient, which a graph would not give");
  }
  return {};
}

std::vector<Tensor> detached(std::vector<Tensor> tensors) {
  for (Tensor& tensor : tensors)
    if (tensor.defined()) tensor = tensor.detach();
  return tensors;
}

void StepDevice::wait() const {
  launched.synchronize();
  synchronize(current_stream(device));
  stream.synchronize();
}

StepDevice::~StepDevice() {
  try {
    wait();
    pool.give_back();
  } catch (...) {
    // The device has failed: its memory stays with the pool, which nobody borrows again.
  }
}

CapturedStep::CapturedStep(StepDevice& device, const StepGraph::Step& step, StepInputs form,
                           int warm_up, Communicator* group)
    : device_(device), step_(step), form_(std::move(form)), warm_up_(warm_up), group_(group) {}

std::vector<Tensor> CapturedStep::call(std::span<const Tensor> inputs) {
  replayed_ = false;
  if (!reason_.empty()) return detached(step_(inputs));
  if (graph_) {
    const std::string unmet = recording_->unmet_condition();
    if (unmet.empty()) {
      take_in(inputs);
      return launch();
    }
    drop_graph();
    if (++tries_ >= most_tries) {
      reason_ =
          detail::concat("a graph of it served ", tries_, " times no more; the last time, ", unmet);
      return detached(step_(inputs));
    }
    calls_ = warm_up_ - 1;
  }
  ++calls_;
  if (calls_ < warm_up_) return detached(step_(inputs));
  return calls_ == warm_up_ ? rehearse(inputs) : capture(inputs);
}

/// An eager call with the memory of the graphs, so that the capture finds there what it needs.
std::vector<Tensor> CapturedStep::rehearse(std::span<const Tensor> inputs) {
  const PrivatePool::Use memory(device_.pool);
  if (inputs_.empty())
    for (const Tensor& input : inputs) inputs_.push_back(empty_like(input));
  take_in(inputs);
  struct OnStream {
    StreamRef outer, inner;
    StreamGuard guard;
    explicit OnStream(StreamRef stream)
        : outer(current_stream(stream.device)),
          inner(stream),
          guard((order(outer, inner), inner)) {}
    ~OnStream() {
      try {
        order(inner, outer);
      } catch (...) {
        // The device has failed: nothing runs on it any more.
      }
    }
  };
  std::vector<Tensor> results, copies;
  {
    const OnStream on_stream(device_.stream);
    results = detached(step_(inputs_));
  }
  // The caller may keep what it gets for longer than the capture can wait for its memory.
  const PrivatePool::Use usual_memory;
  for (const Tensor& result : results) {
    copies.push_back(result.defined() ? result.clone() : result);
    if (result.defined()) result.record_stream(current_stream(result.device()));
  }
  return copies;
}

std::vector<Tensor> CapturedStep::capture(std::span<const Tensor> inputs) {
  // Blocks that wait for streams are free by then; a capture could not ask for that.
  synchronize(current_stream(device_.device));
  device_.stream.synchronize();
  device_.pool.memory().trim(~std::size_t{0});
  take_in(inputs);
  if (!random_) random_ = Storage::allocate(sizeof(PhiloxState), device_.device);
  bool try_again = false;
  std::string failure = record();
  try {
    failure = agree(failure, try_again);
  } catch (...) {
    recording_->conclude(false);
    drop_graph();
    throw;
  }
  recording_->conclude(failure.empty());
  if (failure.empty()) return launch();
  drop_graph();
  if (try_again && ++tries_ < most_tries) return rehearse(inputs);
  reason_ = failure;
  return detached(step_(inputs));
}

/// Captures the step. @return why that failed, or nothing.
std::string CapturedStep::record() {
  const StreamRef outer = current_stream(device_.device);
  DeviceRuntime& runtime = device_runtime(device_.device.type);
  recording_ = std::make_unique<StepRecording>(device_.stream, device_.pool.memory(),
                                               static_cast<PhiloxState*>(random_->data()));
  std::string failure;
  {
    const PrivatePool::Use memory(device_.pool);
    const StreamGuard guard(device_.stream);
    runtime.begin_capture(device_.stream);
    failure = run_captured();
    try {
      graph_ = runtime.end_capture(device_.stream);
    } catch (...) {
      if (failure.empty()) failure = current_message();
    }
    recording_->end();
  }
  order(device_.stream, outer);
  if (failure.empty() && !recording_->group().empty() && !group_)
    failure = detail::concat("it has collectives over the ranks of ", recording_->group(),
                             ", which must capture it alike; give StepGraphOptions::group");
  return failure;
}

std::string CapturedStep::run_captured() {
  const StepRecording::Scope scope(*recording_);
  std::string failure;
  const PhiloxState place = default_generator().state();
  try {
    results_ = detached(step_(inputs_));
  } catch (...) {
    failure = current_message();
  }
  if (const PhiloxState now = default_generator().state();
      now.seed != place.seed || now.offset != place.offset) {
    if (failure.empty()) failure = "it seeds the generator, which a launch would not do";
    default_generator().set_state(place);
  }
  try {
    for (const StreamRef stream : recording_->forks()) order(stream, device_.stream);
  } catch (...) {
    if (failure.empty()) failure = current_message();
  }
  return failure;
}

/// NCCL wants all ranks to replay, or none. @param try_again whether any of them wants to.
std::string CapturedStep::agree(const std::string& own, bool& try_again) const {
  try_again = recording_->wants_another_try();
  if (!group_ || group_->size() == 1 || device_.device.is_cpu()) return own;
  const auto all =
      comm::all_gather_bytes(*group_, (try_again ? "m" : " ") + own, "whether a step was captured");
  std::string failure;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    try_again |= all[rank].starts_with('m');
    if (failure.empty() && all[rank].size() > 1)
      failure = detail::concat("rank ", rank, ": ", all[rank].substr(1));
  }
  return failure;
}

/// What was returned before may be an input again, and lie where an input is written to.
void CapturedStep::take_in(std::span<const Tensor> inputs) {
  const NoGradGuard no_recording;
  std::vector<Tensor> values(inputs.begin(), inputs.end());
  for (Tensor& value : values)
    for (const Tensor& place : inputs_)
      if (value.impl().storage.get() == place.impl().storage.get()) {
        value = value.clone();
        break;
      }
  for (std::size_t i = 0; i < values.size(); ++i) inputs_[i].copy_(values[i]);
}

std::vector<Tensor> CapturedStep::launch() {
  recording_->run_before();
  const StreamRef stream = current_stream(device_.device);
  if (recording_->draws() > 0) {
    Generator& generator = default_generator();
    PhiloxState place = generator.state();
    backend::of(device_.device)
        .random.set_place({.memory = static_cast<PhiloxState*>(random_->data()), .place = place},
                          stream);
    place.offset += recording_->draws();
    generator.set_state(place);
  }
  try {
    device_runtime(device_.device.type).launch_graph(graph_, stream);
  } catch (const std::exception& error) {
    recording_->run_failed(error.what());
    throw;
  }
  replayed_ = true;
  device_.launched.record(stream);
  recording_->run_after();
  return detached(results_);
}

void CapturedStep::drop_graph() noexcept {
  if (graph_) device_runtime(device_.device.type).destroy_graph(device_.device, graph_);
  graph_ = nullptr;
  recording_.reset();
  results_.clear();
}

}  // namespace lockstep::train
