#include "train/captured_step.hpp"

#include <algorithm>
#include <optional>

#include "autograd/read_notes.hpp"
#include "backend/backend.hpp"
#include "core/current_message.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/tensor/storage.hpp"
#include "memory/allocator_override.hpp"
#include "memory/step_rehearsal.hpp"
#include "tensor/background_reads.hpp"
#include "tensor/recurring_gate.hpp"

namespace lockstep::train {
namespace {

// A capture that finds too little memory, or a graph that fits no more, is made anew so often, but
// for graphs that have served so long that they were worth it.
constexpr int most_tries = 3, worth_a_capture = 50;

// Of graphs that ended because their memory was taken, which the first call of each further shape
// may do, so many are made anew beside those.
constexpr int most_takings = 16;
constexpr std::string_view memory_was_taken =
    "memory that it writes to has become a tensor's that the program keeps";

/// What comes on `later` from now on waits for what is on `earlier` now.
void order(StreamRef earlier, StreamRef later) {
  Event mark(earlier.device);
  mark.record(earlier);
  mark.wait(later);
}

/// The caller may keep what it gets for longer than the capture can wait for its memory.
std::vector<Tensor> copies_of(const std::vector<Tensor>& results) {
  const detail::AllocatorOverride usual_memory;
  std::vector<Tensor> copies;
  for (const Tensor& result : results) {
    copies.push_back(result.defined() ? result.clone() : result);
    if (result.defined()) result.record_stream(current_stream(result.device()));
  }
  return copies;
}

/// Takes a stream into the order of the current one: its work comes after what is there, and what
/// comes there after the end of scope, after its work.
class JoinedStream {
 public:
  explicit JoinedStream(StreamRef stream) : outer_(current_stream(stream.device)), inner_(stream) {
    order(outer_, inner_);
  }
  JoinedStream(const JoinedStream&) = delete;
  JoinedStream& operator=(const JoinedStream&) = delete;
  ~JoinedStream() {
    try {
      order(inner_, outer_);
    } catch (...) {
      // The device has failed: nothing runs on it any more.
    }
  }

 private:
  StreamRef outer_, inner_;
};

/// While it lives, a thread captures, and gates stand for that.
class AnnouncedCapture {
 public:
  AnnouncedCapture() {
    opening_.emplace();
    stand_for_captures();
  }
  AnnouncedCapture(const AnnouncedCapture&) = delete;
  AnnouncedCapture& operator=(const AnnouncedCapture&) = delete;
  ~AnnouncedCapture() {
    opening_.reset();
    stand_for_captures();
  }

 private:
  std::optional<StepRecording::Opening> opening_;
};

}  // namespace

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

void StepDevice::begin_call() {
  const StreamRef current = current_stream(device);
  if (caller && *caller != current) order(*caller, current);
  caller = current;
}

void StepDevice::reclaim() {
  wait();
  pool.reclaim_aside([this](const void* memory) {
    return std::ranges::any_of(
        graphs, [memory](const StepRecording* graph) { return graph->has_made(memory); });
  });
}

std::string StepDevice::marks_of_writers(const std::unordered_set<RefCounted*>& kept) const {
  std::string marks(graphs.size(), '0');
  for (RefCounted* const each : kept) {
    const auto& array = static_cast<const Storage&>(*each);
    if (array.device() != device) continue;
    for (std::size_t i = 0; i < graphs.size(); ++i)
      if (graphs[i]->writes_to(array.data(), array.bytes())) marks[i] = '1';
  }
  return marks;
}

void StepDevice::end_graphs(std::string_view marks) const {
  for (std::size_t i = 0; i < graphs.size() && i < marks.size(); ++i)
    if (marks[i] == '1') graphs[i]->launcher()->end(std::string(memory_was_taken));
}

StepDevice::~StepDevice() {
  try {
    wait();
    pool.give_back();
  } catch (...) {
    // The device has failed: its memory stays with the pool, which nobody borrows again.
  }
}

CapturedStep::CapturedStep(StepDevice& device, const StepGraph::Step& step, StepForm form,
                           int warm_up, Communicator* group)
    : device_(device), step_(step), form_(std::move(form)), warm_up_(warm_up), group_(group) {}

std::vector<Tensor> CapturedStep::call(std::span<const Tensor> inputs) {
  replayed_ = false;
  if (!reason_.empty()) return detached(step_(inputs));
  if (recording_) {
    const std::string unmet = recording_->unmet_condition();
    if (unmet.empty()) {
      inputs_.take_in(inputs);
      return launch();
    }
    drop_graph();
    device_.reclaim();
    if (launches_ >= worth_a_capture) tries_ = 0;
    const bool was_taken = unmet == memory_was_taken && ++takings_ <= most_takings;
    if (!was_taken && ++tries_ >= most_tries) {
      reason_ =
          detail::concat("a graph of it served ", tries_, " times no more; the last time, ", unmet);
      return detached(step_(inputs));
    }
    calls_ = warm_up_ - 1;
  }
  if (calls_ >= warm_up_) return capture(inputs);
  auto results = calls_ + 1 < warm_up_ ? run_on_copies(inputs) : rehearse(inputs);
  ++calls_;  // one that throws has not warmed up what comes behind
  return results;
}

/// What the step writes to an input stays in a copy of it, as in a launch; so do its results, so
/// that whoever keeps them keeps nothing that the step has.
std::vector<Tensor> CapturedStep::run_on_copies(std::span<const Tensor> inputs) {
  StaticInputs copies;
  copies.make_like(inputs);
  copies.take_in(inputs);
  return copies_of(detached(step_(copies.tensors())));
}

/// An eager call with the memory of the graphs, so that the capture finds there what it needs.
std::vector<Tensor> CapturedStep::rehearse(std::span<const Tensor> inputs) {
  try {
    return run_in_graph_memory(inputs);
  } catch (const OutOfMemory& error) {
    // Calls without that memory have fitted; this one cannot be made again.
    reason_ = detail::concat("there is no memory for a graph: ", error.what());
    lacks_memory_ = true;
    throw;
  }
}

void CapturedStep::give_up_graph() noexcept {
  drop_graph();
  inputs_ = {};
  calls_ = std::min(calls_, warm_up_ - 1);
}

std::vector<Tensor> CapturedStep::run_in_graph_memory(std::span<const Tensor> inputs) {
  const detail::AllocatorOverride memory(device_.device, device_.pool);
  if (inputs_.empty()) inputs_.make_like(inputs);
  inputs_.take_in(inputs);
  const JoinedStream joined_at_its_end(device_.stream);  // where it returns memory of the graphs
  StepRehearsal rehearsal(device_.device, device_.pool);
  const autograd::ReadNotesGuard noted(true);  // results that the step did not make, too
  std::vector<Tensor> results;
  {
    const JoinedStream joined(device_.stream);  // before the end, where it returns the caller's
    const StreamGuard guard(device_.stream);
    results = detached(step_(inputs_.tensors()));
  }
  std::vector<Tensor> copies = copies_of(results);
  results.clear();
  rehearsal.let_go();
  refusal_ = rehearsal.refusal();
  // Else there is none that could overwrite what the call leaves.
  if (!device_.graphs.empty()) rehearsal.end();
  end_graphs_of_taken_memory(rehearsal.made());
  return copies;
}

/// Ends graphs that write to what a rehearsal has made and the program keeps; where ranks agree,
/// on all of them those that one has to end, for each has memory of its own.
void CapturedStep::end_graphs_of_taken_memory(const std::unordered_set<RefCounted*>& kept) const {
  if (device_.graphs.empty()) return;
  const std::string own = device_.marks_of_writers(kept);
  if (!must_agree()) return device_.end_graphs(own);
  for (const std::string& marks :
       comm::all_gather_bytes(*group_, own, "which captured steps lost their memory"))
    device_.end_graphs(marks);
}

/// Graphs of other forms do not overwrite what this one leaves, as long as it is there, unless they
/// replace it themselves. Where ranks agree none does, wherever their memory lies.
void CapturedStep::spare_what_it_leaves() const {
  for (const StepRecording::Left& left : recording_->left())
    for (StepRecording* const graph : device_.graphs)
      if (!graph->has_met(left.object) &&
          (must_agree() || graph->writes_to(left.memory, left.bytes)))
        graph->require(
            [is_there = left.is_there] { return std::string(is_there() ? memory_was_taken : ""); });
}

std::vector<Tensor> CapturedStep::capture(std::span<const Tensor> inputs) {
  using Collectives = StepRecording::Collectives;
  Outcome outcome;
  // Within the capture NCCL may exchange with the other ranks on the host, for as long as it takes
  // them to come there: none begins before all have found out that they can capture.
  if (must_agree()) outcome = attempt(inputs, Collectives::left_out);
  if (outcome.failure.empty())
    outcome = attempt(inputs, must_agree() ? Collectives::captured : Collectives::refused);
  if (outcome.failure.empty()) return launch();
  if (outcome.try_again && !outcome.cannot_repeat && ++tries_ < most_tries) return rehearse(inputs);
  reason_ = outcome.failure;
  LOCKSTEP_CHECK(!outcome.cannot_repeat, InvalidArgument,
                 "a captured step cannot be made again eagerly: ", reason_,
                 ". Make what goes from call to call an input and a result");
  return detached(step_(inputs));
}

/// Captures the step, and keeps the graph if that succeeds on all ranks, and nothing is left out.
CapturedStep::Outcome CapturedStep::attempt(std::span<const Tensor> inputs,
                                            StepRecording::Collectives collectives) {
  // What the step has kept of the call before may read the inputs of that.
  if (!refusal_.empty()) return agree({.failure = refusal_});
  inputs_.take_in(inputs);
  // Blocks that wait for streams are free by then; a capture could not ask for that.
  wait_at_gates();  // nor for a collective that it did not begin
  synchronize(current_stream(device_.device));
  device_.stream.synchronize();
  wait_at_gates();  // which has ended now, and is waited for no more
  device_.pool.memory().trim(~std::size_t{0});
  if (!random_) random_ = Storage::allocate(sizeof(PhiloxState), device_.device);
  const auto conclude = [&](bool keeps) {
    if (keeps) {
      recording_->conclude(true);
      spare_what_it_leaves();
      device_.graphs.push_back(recording_.get());
      device_.reclaim();  // what was kept for a capture that fails
      return;
    }
    const detail::AllocatorOverride memory(device_.device, device_.pool);  // no launch writes there
    recording_->conclude(false);
    drop_graph();
  };
  const bool is_tried_only = collectives == StepRecording::Collectives::left_out;
  Outcome outcome;
  try {
    outcome.failure = record(collectives);
    outcome.try_again = recording_->wants_another_try();
    // A launch would still find it, which is held for that: the only one.
    const std::string lost = recording_->lost_read();
    outcome.cannot_repeat = !lost.empty();
    if (outcome.cannot_repeat && (is_tried_only || !outcome.failure.empty()))
      outcome.failure = lost;
    outcome = agree(std::move(outcome));
  } catch (...) {
    conclude(false);
    throw;
  }
  conclude(outcome.failure.empty() && !is_tried_only);
  return outcome;
}

/// Captures the step. @return why that failed, or nothing.
std::string CapturedStep::record(StepRecording::Collectives collectives) {
  const StreamRef outer = current_stream(device_.device);
  DeviceRuntime& runtime = device_runtime(device_.device.type);
  recording_ =
      std::make_unique<StepRecording>(device_.stream, device_.pool.memory(),
                                      static_cast<PhiloxState*>(random_->data()), collectives);
  launches_ = 0;
  std::string failure;
  {
    const detail::AllocatorOverride memory(device_.device, device_.pool);
    const StreamGuard guard(device_.stream);
    {
      const AnnouncedCapture announced;
      runtime.begin_capture(device_.stream);
      failure = run_captured();
      try {
        recording_->launcher()->set(runtime.end_capture(device_.stream));
      } catch (...) {
        if (failure.empty()) {
          failure = current_message();
          recording_->suggest_another_try();  // the driver may have had too little memory for it
        }
      }
    }
    recording_->end();
  }
  // Launches are not in the order of these streams, which may still use memory that the graph has.
  for (const StreamRef stream : recording_->memory_streams())
    device_runtime(device_.device.type).synchronize(stream);
  order(device_.stream, outer);
  return failure;
}

std::string CapturedStep::run_captured() {
  const StepRecording::Scope scope(*recording_);
  const autograd::ReadNotesGuard noted(true);
  std::string failure;
  const PhiloxState place = default_generator().state();
  try {
    results_ = detached(step_(inputs_.tensors()));
    own_results();
    failure = recording_->refusal();
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

/// Results that the step has not made become copies, which launches make: else whoever has a
/// result would have what they read.
void CapturedStep::own_results() {
  for (Tensor& result : results_) {
    if (!result.defined() || result.device() != device_.device) continue;
    if (result.numel() > 0 && !recording_->has_made(result.impl().storage->data()))
      result = result.clone();
    kept_results_.emplace_back(result.impl().storage, 1);
  }
}

bool CapturedStep::must_agree() const {
  return group_ && group_->size() > 1 && !device_.device.is_cpu();
}

/// NCCL wants all ranks to replay, or none: none has succeeded where one has not, and where one
/// cannot make its call again, none does.
CapturedStep::Outcome CapturedStep::agree(Outcome own) const {
  if (!must_agree()) {
    own.cannot_repeat &= !own.failure.empty();
    return own;
  }
  std::string told = own.try_again ? "m" : " ";
  told += own.cannot_repeat ? "l" : " ";
  const auto all =
      comm::all_gather_bytes(*group_, told + own.failure, "whether a step was captured");
  Outcome outcome;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    outcome.try_again |= all[rank][0] == 'm';
    const bool counts_more = all[rank][1] == 'l' && all[rank].size() > 2 && !outcome.cannot_repeat;
    outcome.cannot_repeat |= all[rank][1] == 'l';
    if (counts_more || (outcome.failure.empty() && all[rank].size() > 2))
      outcome.failure = detail::concat("rank ", rank, ": ", all[rank].substr(2));
  }
  outcome.cannot_repeat &= !outcome.failure.empty();
  return outcome;
}

std::vector<Tensor> CapturedStep::launch() {
  recording_->part<PassedGates>().wait();  // which it asked when it was captured
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
  for (const Keeper& array : recording_->written()) {
    auto& written = static_cast<Storage&>(*array.get());
    wait_for_reads(written);
    written.bump_version();
  }
  for (const Tensor& result : results_)
    if (result.defined()) result.impl().storage->bump_version();
  try {
    recording_->launcher()->launch(stream);
  } catch (const std::exception& error) {
    recording_->run_failed(error.what());
    throw;
  }
  replayed_ = true;
  ++launches_;
  device_.launched.record(stream);
  recording_->run_after();
  return detached(results_);
}

void CapturedStep::drop_graph() noexcept {
  std::erase(device_.graphs, recording_.get());
  recording_.reset();
  kept_results_.clear();
  results_.clear();
}

}  // namespace lockstep::train
