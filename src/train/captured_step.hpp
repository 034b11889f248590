#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/philox.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/train/step_graph.hpp"
#include "memory/private_pool.hpp"
#include "runtime/step_recording.hpp"

/// @file
/// The graph of a step for inputs of one form.

namespace lockstep::train {

/// What a graph depends on, of the inputs and of the calling thread's modes.
class StepInputs {
 public:
  explicit StepInputs(std::span<const Tensor> inputs);
  bool operator==(const StepInputs&) const = default;

 private:
  struct Form {
    Shape shape;
    DType dtype;
    bool channels_last;
    bool operator==(const Form&) const = default;
  };
  std::vector<Form> forms_;
  bool grad_ = true;
  std::array<DType, 2> autocast_{};
};

/// Why a step of such inputs is not captured; empty if it may be.
std::string refusal_of(std::span<const Tensor> inputs, Device device);

/// The same values without history.
std::vector<Tensor> detached(std::vector<Tensor> tensors);

/// What the graphs of a StepGraph share: the stream that captures, and their memory.
class StepDevice {
 public:
  explicit StepDevice(Device where)
      : device(where), stream(where), pool(PrivatePool::borrow(where)) {}
  StepDevice(const StepDevice&) = delete;
  StepDevice& operator=(const StepDevice&) = delete;
  /// Waits for the device. No graph may be left.
  ~StepDevice();

  /// For launches on any stream, and what came before on the current one.
  void wait() const;

  const Device device;
  const Stream stream;
  PrivatePool& pool;
  Event launched{device};  // the last launch
};

/// A step for inputs of one form: runs it until it is warm, captures it, and replays it.
class CapturedStep {
 public:
  /// @param warm_up eager calls before the capture.
  CapturedStep(StepDevice& device, const StepGraph::Step& step, StepInputs form, int warm_up,
               Communicator* group);
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;
  ~CapturedStep() { drop_graph(); }

  const StepInputs& inputs() const noexcept { return form_; }
  std::vector<Tensor> call(std::span<const Tensor> inputs);
  bool replayed() const noexcept { return replayed_; }
  const std::string& reason() const noexcept { return reason_; }

 private:
  std::vector<Tensor> rehearse(std::span<const Tensor> inputs);
  std::vector<Tensor> capture(std::span<const Tensor> inputs);
  std::vector<Tensor> launch();
  void take_in(std::span<const Tensor> inputs);
  std::string record();
  std::string run_captured();
  std::string agree(const std::string& own, bool& try_again) const;
  void drop_graph() noexcept;

  StepDevice& device_;
  const StepGraph::Step& step_;
  StepInputs form_;
  int warm_up_, calls_ = 0, tries_ = 0;
  Communicator* group_;

  std::vector<Tensor> inputs_, results_;  // static: in the memory of the graphs
  IntrusivePtr<Storage> random_;          // the place before the first draw
  std::unique_ptr<StepRecording> recording_;
  void* graph_ = nullptr;
  bool replayed_ = false;
  std::string reason_;
};

}  // namespace lockstep::train
