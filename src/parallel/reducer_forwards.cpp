#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/parallel/reducer.hpp"
#include "memory/step_rehearsal.hpp"
#include "parallel/gathered_parameters.hpp"
#include "parallel/micro_batch_tree.hpp"
#include "runtime/step_recording.hpp"

// What a forward through the model has a reducer do, and the backward that follows it.

namespace lockstep::parallel {

/// Null where parameters stay whole.
std::function<bool()> Reducer::uses_in_backward() const {
  if (!options_.gathers_parameters) return nullptr;
  return [this] { return running_ || autograd::Engine::reaches(accumulate_tag_); };
}

GatheredParameters* Reducer::gathered() const { return shards_ ? shards_->gathered() : nullptr; }

autograd::TagGuard Reducer::record_forward(Mode mode) {
  check_usable();
  if (gathered() && is_captured())
    refuse_in_captured_step("parameters are gathered when they are used (zero_stage 3)",
                            "give zero_stage 2 to capture steps");
  share_writes();
  if (grad_enabled()) leave_local_as_captured();
  if (shards_ && is_captured())
    StepRecording::current()->before_launch([this] {
      share_writes();
      shards_->wait();
    });
  if (tree_ && grad_enabled()) {
    refuse_in_captured_step("a reproducible reduction counts micro-batches on the host",
                            "such steps run eagerly", group_->device());
    tree_->begin_forward();
  }
  if (mode == Mode::accumulate) {
    if (grad_enabled()) hear_of_accumulations();
    return autograd::TagGuard(accumulate_tag_);
  }
  if (is_captured()) {
    if ((options_.find_unused_parameters && !options_.static_graph) || !(rebuilt_ || shares_out()))
      refuse_in_captured_step(
          "a reducer reads on the host which parameters were used",
          "give static_graph in the place of find_unused_parameters, and make a first step before");
    if (planner_)
      refuse_in_captured_step("a reducer measures its first steps on the host, to plan its buckets",
                              "make three steps before, or give bucket_plan = pytorch");
    if (grad_enabled()) {
      StepRecording::current()->before_launch([this] {
        check_usable();
        ++forwards_;
      });
      const std::weak_ptr<Reducer*> self = self_;
      StepRecording::current()->require([self, reduction = options_.reduction]() -> std::string {
        const auto reducer = self.lock();
        return !reducer || (*reducer)->options_.reduction == reduction
                   ? ""
                   : "another communication hook was registered";
      });
    }
  } else if (grad_enabled() && forwards_++ == 0) {
    const std::weak_ptr<Reducer*> self = self_;
    autograd::on_backward_through(reduce_tag_, [self] {
      if (const auto reducer = self.lock()) (*reducer)->begin_backward();
    });
  }
  return autograd::TagGuard(reduce_tag_);
}

bool Reducer::has_accumulated() const {
  if (tree_ && tree_->count() > 0) return true;
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (is_local(i)) return true;
  return false;
}

/// A launch leaves gradients as the step did that was captured; a capture that is given up, as they
/// were before.
void Reducer::leave_local_as_captured() {
  static constexpr std::string_view in_buckets_that_go =
      "backwards under no_sync() outside of it add up gradients, in buckets that come and go with "
      "each step (zero_stage 2): let it have all backwards between two updates, or give zero_stage "
      "1";
  StepRehearsal* const rehearsal = StepRehearsal::current();
  if (options_.frees_buckets && rehearsal && rehearsal->meets(&is_local_) && has_accumulated())
    rehearsal->refuse(in_buckets_that_go);
  StepRecording* const recording = StepRecording::on(group_->device());
  if (!recording || !recording->meets(&is_local_)) return;
  using Marks = std::pair<std::vector<bool>, std::vector<bool>>;
  const auto left = std::make_shared<Marks>();
  const std::weak_ptr<Reducer*> self = self_;
  const auto set = [self](const Marks& marks) {
    if (const auto reducer = self.lock())
      std::tie((*reducer)->is_local_, (*reducer)->begun_) = marks;
  };
  recording->at_end([self, left] {
    if (const auto reducer = self.lock()) *left = {(*reducer)->is_local_, (*reducer)->begun_};
  });
  recording->after_launch([set, left] { set(*left); });
  recording->when_abandoned([set, before = Marks(is_local_, begun_)] { set(before); });
  if (!options_.frees_buckets) return;
  recording->refuse_if([self]() -> std::string {
    const auto reducer = self.lock();
    return reducer && (*reducer)->has_accumulated()
               ? "it leaves gradients that backwards under no_sync() have added up, in buckets "
                 "that "
                 "come and go (zero_stage 2): let it have all backwards between two updates, or "
                 "give zero_stage 1"
               : "";
  });
}

Accumulated Reducer::accumulated() const {
  LOCKSTEP_CHECK(!tree_ || tree_->count() == 0, InvalidArgument,
                 "reduction = reproducible has partial sums of ", tree_ ? tree_->count() : 0,
                 " micro-batches, which belong to this number of ranks; save behind the step's "
                 "last backward");
  Accumulated all{.gradients = {}, .weight = accumulated_weight_, .unit = unit_};
  for (const auto& leaf : leaves_) all.gradients.push_back(leaf->gradient());
  return all;
}

void Reducer::set_accumulated(const Accumulated& accumulated) {
  LOCKSTEP_CHECK(!running_ && !tree_ && accumulated.gradients.size() == leaves_.size(),
                 InvalidArgument, "gradients of ", accumulated.gradients.size(),
                 " parameters cannot be put between the micro-batches of a reducer of ",
                 leaves_.size(), running_ ? " inside its backward" : "",
                 tree_ ? " whose reduction is reproducible" : "");
  const NoGradGuard no_recording;
  if (shards_) shards_->clear_gradients();
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    leaves_[i]->set_gradient(accumulated.gradients[i]);
    is_local_[i] = accumulated.gradients[i].defined();
  }
  accumulated_weight_ = accumulated.weight;
  unit_ = accumulated.unit;
  is_unit_sure_ = false;
  is_cleared_ = false;
}

void Reducer::drop_accumulated() {
  if (!has_accumulated()) return;
  if (tree_) return tree_->clear();
  set_accumulated({.gradients = std::vector<Tensor>(leaves_.size()), .weight = {}, .unit = {}});
}

/// From now on, before each backward through a forward that accumulates.
void Reducer::hear_of_accumulations() {
  if (std::exchange(hears_of_accumulations_, true)) return;
  autograd::on_backward_through(accumulate_tag_, [self = std::weak_ptr<Reducer*>(self_)] {
    if (const auto reducer = self.lock()) (*reducer)->begin_accumulation();
  });
}

void Reducer::begin_accumulation() {
  if (tree_) {
    if (!weighted_) join_weights();  // which refuses
    begin_micro_batch();
  } else if (!weighted_ && !join_weights()) {
    check_weights_fit(false);
  }
  if (gathered()) gather_in_backward();
}

/// Parameters are gathered for backwards that only add up, too.
void Reducer::gather_in_backward() {
  if (running_) return;
  gathered()->begin_backward();
  const auto end = [self = std::weak_ptr<Reducer*>(self_)] {
    if (const auto reducer = self.lock(); reducer && !(*reducer)->running_)
      (*reducer)->gathered()->end_backward();
  };
  autograd::Engine::queue_callback(end, end);
}

}  // namespace lockstep::parallel
