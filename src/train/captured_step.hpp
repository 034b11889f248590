#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/runtime/event.hpp"
#include "lockstep/train/step_graph.hpp"
#include "memory/private_pool.hpp"
#include "runtime/step_recording.hpp"
#include "train/step_inputs.hpp"

/// @file
/// The graph of a step for inputs of one form.

namespace lockstep::train {

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
  /// A call begins: what it overwrites, inputs and results, the stream of the last one may be at.
  void begin_call();
  /// Takes back the memory that no graph has any more. Waits for the device.
  void reclaim();
  /// Which graphs write to what a rehearsal has made and somebody keeps: a '1' for each, else '0'.
  std::string marks_of_writers(const std::unordered_set<RefCounted*>& kept) const;
  /// Ends the graphs that have a '1'.
  void end_graphs(std::string_view marks) const;

  const Device device;
  const Stream stream;
  PrivatePool& pool;
  Event launched{device};              // the last launch
  std::vector<StepRecording*> graphs;  // of all forms
  std::optional<StreamRef> caller;     // the stream of the last call
};

/// A step for inputs of one form: runs it until it is warm, captures it, and replays it.
class CapturedStep {
 public:
  /// @param warm_up eager calls before the capture.
  CapturedStep(StepDevice& device, const StepGraph::Step& step, StepForm form, int warm_up,
               Communicator* group);
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;
  ~CapturedStep() { drop_graph(); }

  const StepForm& form() const noexcept { return form_; }
  std::vector<Tensor> call(std::span<const Tensor> inputs);
  /// Gives back its memory. A later call rehearses again.
  void give_up_graph() noexcept;
  bool replayed() const noexcept { return replayed_; }
  const std::string& reason() const noexcept { return reason_; }
  /// Whether that is the reason.
  bool lacks_memory() const noexcept { return lacks_memory_; }

 private:
  std::vector<Tensor> run_on_copies(std::span<const Tensor> inputs);
  std::vector<Tensor> rehearse(std::span<const Tensor> inputs);
  std::vector<Tensor> run_in_graph_memory(std::span<const Tensor> inputs);
  std::vector<Tensor> capture(std::span<const Tensor> inputs);
  std::vector<Tensor> launch();
  /// What an attempt to capture has come to.
  struct Outcome {
    std::string failure;         // empty if it has succeeded
    bool try_again = false;      // one more eager call may make it succeed
    bool cannot_repeat = false;  // an eager call would not find what this one has read
  };
  bool must_agree() const;
  void end_graphs_of_taken_memory(const std::unordered_set<RefCounted*>& kept) const;
  void spare_what_it_leaves() const;
  Outcome attempt(std::span<const Tensor> inputs, StepRecording::Collectives collectives);
  std::string record(StepRecording::Collectives collectives);
  std::string run_captured();
  void own_results();
  Outcome agree(Outcome own) const;
  void drop_graph() noexcept;

  StepDevice& device_;
  const StepGraph::Step& step_;
  StepForm form_;
  int warm_up_, calls_ = 0, tries_ = 0, takings_ = 0, launches_ = 0;
  Communicator* group_;

  StaticInputs inputs_;
  std::vector<Tensor> results_;               // in the memory of the graphs
  std::vector<Keeper> kept_results_;          // their arrays, which nobody wants for that
  IntrusivePtr<Storage> random_;              // the place before the first draw
  std::unique_ptr<StepRecording> recording_;  // with the graph; null where there is none
  bool replayed_ = false, lacks_memory_ = false;
  std::string refusal_;  // of a capture, found out in the rehearsal
  std::string reason_;
};

}  // namespace lockstep::train
