#include "lockstep/train/step_graph.hpp"

#include <algorithm>
#include <set>
#include <typeinfo>
#include <utility>

#include "lockstep/observe/log.hpp"
#include "train/captured_step.hpp"

namespace lockstep {

using train::CapturedStep;
using train::StepForm;

struct StepGraph::State {
  Step step;
  StepGraphOptions options;
  std::unique_ptr<train::StepDevice> device;  // none before the first call, nor on the CPU
  std::vector<std::unique_ptr<CapturedStep>> shapes;
  int calls = 0;
  int calls_within = 0;  // that have not returned
  bool wants_reset = false;
  bool replayed = false;
  std::string reason;
  std::set<std::string> told;  // reasons

  Device device_of(std::span<const Tensor> inputs) const {
    if (options.device) return *options.device;
    return inputs.empty() || !inputs[0].defined() ? cpu : inputs[0].device();
  }

  void tell(const std::string& why) {
    reason = why;
    if (!why.empty() && told.insert(why).second)
      LOCKSTEP_LOG(warning, "a step runs eagerly: ", why);
  }

  std::vector<Tensor> fall_back(std::span<const Tensor> inputs, const std::string& why) {
    tell(why);
    try {
      return train::detached(step(inputs));
    } catch (const InvalidArgument& error) {
      // The op that meets an undefined tensor does not know which one it is.
      const auto undefined = std::ranges::find(inputs, false, &Tensor::defined);
      if (undefined == inputs.end() || typeid(error) != typeid(InvalidArgument)) throw;
      LOCKSTEP_THROW(InvalidArgument, "a step was given an undefined tensor as input ",
                     undefined - inputs.begin(), ": ", error.what());
    }
  }

  /// The shape of the inputs, or null for one too many.
  CapturedStep* find(std::span<const Tensor> inputs) {
    StepForm form(inputs, device->device);
    for (const auto& shape : shapes)
      if (shape->form() == form) return shape.get();
    if (shapes.size() >= options.max_shapes) return nullptr;
    const int warm_up = shapes.empty() && calls == 0 ? options.num_warmup_iters : 1;
    shapes.push_back(std::make_unique<CapturedStep>(*device, step, std::move(form), warm_up,
                                                    options.group.get()));
    return shapes.back().get();
  }

  /// Of all shapes: there is too little for another one, whose eager calls may need it.
  void give_up_memory() {
    for (const auto& shape : shapes) shape->give_up_graph();
    device->wait();
    device->pool.release_aside();
  }

  /// What a shape that is gone had.
  void reclaim() {
    try {
      device->reclaim();
    } catch (const Error&) {  // the device has failed, which is what the caller hears
    }
  }

  std::vector<Tensor> call(std::span<const Tensor> inputs) {
    ++calls_within;
    const auto leave = [this] {
      if (--calls_within == 0 && std::exchange(wants_reset, false)) reset();
    };
    std::vector<Tensor> results;
    try {
      results = run(inputs);
    } catch (...) {
      leave();
      throw;
    }
    leave();
    return results;
  }

  /// Forgets the graphs: when the call is over, if the step asks for it itself.
  void reset() {
    wants_reset = calls_within > 0;
    if (wants_reset) return;
    shapes.clear();
    if (device) {
      device->wait();
      device->pool.release_aside();
      device.reset();  // inputs may lie elsewhere from now on
    }
    reason.clear();
    told.clear();
    replayed = false;
  }

  std::vector<Tensor> run(std::span<const Tensor> inputs) {
    replayed = false;
    if (StepRecording::current()) return train::detached(step(inputs));  // a part of another
    const Device where = device ? device->device : device_of(inputs);
    if (const std::string refusal = train::refusal_of(inputs, where); !refusal.empty())
      return fall_back(inputs, refusal);
    try {
      if (!device) device = std::make_unique<train::StepDevice>(where);
    } catch (const Unsupported& refusal) {
      return fall_back(inputs, refusal.what());
    }
    const std::size_t known = shapes.size();
    CapturedStep* const shape = find(inputs);
    if (!shape)
      return fall_back(inputs, "graphs are kept for " + std::to_string(shapes.size()) +
                                   " shapes of inputs already; raise max_shapes");
    std::vector<Tensor> results;
    const bool ran_eagerly = !shape->reason().empty();
    try {
      device->begin_call();
      results = shape->call(inputs);
    } catch (...) {
      if (!ran_eagerly && shape->lacks_memory()) give_up_memory();
      // Nothing has run with these inputs, and nothing is known of them.
      if (shapes.size() > known && shape->reason().empty()) {
        shapes.pop_back();
        reclaim();
      }
      if (shapes.empty() && calls == 0) device.reset();  // it may have been the wrong one
      throw;
    }
    ++calls;
    replayed = shape->replayed();
    tell(shape->reason());
    return results;
  }
};

StepGraph::StepGraph(Step step, const StepGraphOptions& options)
    : state_(std::make_unique<State>()) {
  LOCKSTEP_CHECK(step, InvalidArgument, "StepGraph: there is no step");
  LOCKSTEP_CHECK(options.num_warmup_iters >= 1, InvalidArgument, "StepGraph: num_warmup_iters is ",
                 options.num_warmup_iters, "; it must be at least 1");
  state_->step = std::move(step);
  state_->options = options;
}

StepGraph::~StepGraph() = default;

std::vector<Tensor> StepGraph::operator()(std::span<const Tensor> inputs) {
  return state_->call(inputs);
}

bool StepGraph::replayed() const noexcept { return state_->replayed; }
const std::string& StepGraph::fallback_reason() const noexcept { return state_->reason; }

void StepGraph::reset() { state_->reset(); }

}  // namespace lockstep
