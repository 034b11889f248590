#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/read_notes.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/gradient_hooks.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/memory/out_of_memory.hpp"
#include "lockstep/tensor/factories.hpp"
#include "memory/allocator_override.hpp"
#include "memory/step_rehearsal.hpp"
#include "runtime/step_recording.hpp"
#include "tensor/ownership.hpp"

// A leaf's part in a step that is captured once and launched many times.

namespace lockstep::autograd {
namespace {

void* address(const Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }

}  // namespace

/// The leaves of a step, which there may be hundreds of: asked in one go before each launch.
class LeafNode::Captured {
 public:
  explicit Captured(StepRecording& recording) {
    recording.require([this] { return unmet_condition(); });
    recording.when_captured([this, &recording] {
      // What went with the step is nothing that a launch has to do with, nor what it has.
      std::erase_if(all_, [](const Entry& each) { return !each.kept.is_wanted(); });
      for (Entry& each : all_) {
        if (!each.matters) each.before = {};  // else the first launch uses it
        each.after = each.leaf->gradient_;
        each.leaves_zeros = each.leaf->is_zero_;
        note_left(recording, each);
      }
    });
    recording.when_abandoned([this] {
      for (Entry& each : all_) {
        each.leaf->gradient_ = each.before;
        each.leaf->is_zero_ = each.found_zeros;
      }
    });
    recording.after_launch([this] { leave_gradients(); });
  }

  void add(LeafNode& leaf, bool matters) {
    all_.push_back({.leaf = &leaf,
                    .kept = Keeper(IntrusivePtr<LeafNode>(&leaf)),
                    .sink = leaf.sink_,
                    .hooks = hooks_of(leaf),
                    .matters = matters,
                    .found = address(leaf.gradient_),
                    .before = leaf.gradient_,
                    .after = {},
                    .found_zeros = leaf.is_zero_});
  }

 private:
  using Hooks = std::array<std::uint64_t, 2>;  // the signatures of tensors' and the leaf's own

  struct Entry {
    LeafNode* leaf;
    Keeper kept;  // it
    const GradientSink* sink;
    Hooks hooks;
    bool matters;  // what is there is read or added to, not only replaced
    void* found;
    Tensor before, after;
    bool found_zeros, leaves_zeros = false;
  };

  static Hooks hooks_of(const LeafNode& leaf) {
    return {leaf.hooks() ? leaf.hooks()->signature() : 0,
            GradientHooks::signature_of(leaf.hooks_, [](const auto& hook) { return hook.first; })};
  }

  std::string unmet_condition() const {
    for (const Entry& each : all_) {
      const LeafNode& leaf = *each.leaf;
      if (leaf.sink_ != each.sink || hooks_of(leaf) != each.hooks)
        return "hooks of a gradient, or who reduces it, have changed since the step was captured";
      if (each.matters && address(leaf.gradient_) != each.found)
        return each.found
                   ? "a gradient lies at another address than when the step was captured"
                   : "there is a gradient that was not there when the step was captured; begin or "
                     "end each step with zero_grad()";
    }
    return {};
  }

  static void note_left(StepRecording& recording, const Entry& entry) {
    const void* const place = address(entry.after);
    if (place && recording.has_made(place))
      recording.note_left(
          {.object = entry.leaf,
           .memory = place,
           .bytes = entry.after.nbytes(),
           .is_there = [leaf = entry.leaf, place,
                        kept = std::make_shared<Keeper>(IntrusivePtr<LeafNode>(entry.leaf))] {
             return kept->is_wanted() && address(leaf->gradient_) == place;
           }});
  }

  void leave_gradients() {
    for (Entry& each : all_) {
      each.before = {};
      Tensor& gradient = each.leaf->gradient_;
      if (address(gradient) != address(each.after)) gradient = each.after;
      each.leaf->is_zero_ = each.leaves_zeros;
      if (each.after.defined()) each.after.impl().storage->bump_version();
    }
  }

  std::vector<Entry> all_;
};

/// A captured step finds the gradient in the same place with each launch, and leaves what the
/// capture left. @param matters what is there is read or added to, not only replaced.
void LeafNode::join_recording(bool matters) {
  StepRehearsal* const rehearsal = StepRehearsal::current();
  if (rehearsal && rehearsal->meets(this)) [[unlikely]] {
    if (matters && gradient_.defined()) rehearsal->note_watched(gradient_.impl().storage->owner());
    rehearsal->at_end(IntrusivePtr<LeafNode>(this),
                      [this, rehearsal] { bring_into_usual_memory(*rehearsal); });
  }
  StepRecording* const recording = StepRecording::on(options_.device);
  if (!recording || !recording->meets(this)) [[likely]]
    return;
  recording->part<Captured>().add(*this, matters);
  if (matters && gradient_.defined()) recording->note_watched(gradient_.impl().storage->owner());
}

/// What a rehearsal has made lies where graphs of other forms may write.
void LeafNode::bring_into_usual_memory(const StepRehearsal& rehearsal) {
  if (sink_ || !gradient_.defined() || !is_sole_owner(gradient_) ||
      !rehearsal.made().contains(gradient_.impl().storage->owner()))
    return;
  const NoGradGuard no_recording;
  const ReadNotesGuard not_of_own(false);
  Tensor copy;
  try {
    const lockstep::detail::AllocatorOverride usual_memory;
    copy = gradient_.clone();
  } catch (const OutOfMemory&) {
    return;  // and graphs that write there end
  }
  gradient_.record_stream(current_stream(gradient_.device()));
  move_to(std::move(copy));  // and the memory of graphs goes back there
}

}  // namespace lockstep::autograd
