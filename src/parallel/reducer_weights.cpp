#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/current_message.hpp"
#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/parallel/reducer.hpp"
#include "lockstep/parallel/writable_buffer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "memory/step_rehearsal.hpp"
#include "parallel/gradient_unit.hpp"
#include "parallel/micro_batch_tree.hpp"
#include "runtime/step_recording.hpp"

// Gradients that count by the weights of their batches.

namespace lockstep::parallel {
namespace {

// What a rank tells beside its weight, in one number: 1 if it has accumulated, so that its
// gradients are in a unit of its own, and this where it has no backward. Sums are exact.
constexpr double without_backward = 1 << 20;

/// Whether two weights are the same; of others than the very same this waits for the device.
bool are_equal(const Tensor& a, const Tensor& b) {
  return a.is_same(b) || (b.defined() && a.item() == b.item());
}

}  // namespace

/// For its scope other wrappers that the backward goes through count by its weight.
class Reducer::Weighing {
 public:
  explicit Weighing(Reducer& reducer)
      : reducer_(reducer),
        depth_(autograd::Engine::depth() + 1),
        before_(std::exchange(current_, this)) {}
  Weighing(const Weighing&) = delete;
  Weighing& operator=(const Weighing&) = delete;
  ~Weighing() {
    for (const auto& self : reducer_.joined_)
      if (const auto reducer = self.lock()) (*reducer)->counts_by_other_ = false;
    reducer_.joined_.clear();
    current_ = before_;
  }

  /// The reducer whose backward runs on the calling thread; null if it has no weight, or is one of
  /// its own inside that, as in a hook.
  static Reducer* current() noexcept {
    return current_ && current_->depth_ == autograd::Engine::depth() ? &current_->reducer_
                                                                     : nullptr;
  }

 private:
  static inline thread_local const Weighing* current_ = nullptr;
  Reducer& reducer_;
  int depth_;
  const Weighing* before_;
};

/// In a backward that was given its weight through another wrapper: gradients count by it here,
/// too.
/// @return whether it is one.
/// @throws InvalidArgument where both do not have the same micro-batches.
bool Reducer::join_weights() {
  if (counts_by_other_) return true;
  Reducer* const other = Weighing::current();
  if (!other || other == this) return false;
  const bool reduces = autograd::Engine::goes_through(reduce_tag_);
  const bool other_reduces = autograd::Engine::goes_through(other->reduce_tag_);
  // What this one adds up beside the other's step is its own, as without a weight: a generator's
  // goes through a discriminator whose gradients are cleared.
  if (!reduces && other_reduces) return false;
  LOCKSTEP_CHECK(
      other_reduces || autograd::Engine::goes_through(other->accumulate_tag_), InvalidArgument,
      "a backward was given a weight through a DistributedDataParallel that its loss does "
      "not go through; call backward of the one that computed it");
  constexpr std::string_view what =
      "a backward with a weight, given through one DistributedDataParallel, goes through another: ";
  LOCKSTEP_CHECK(reduces == other_reduces, InvalidArgument, what,
                 "that one is under no_sync(), and this is not; let both be, or none");
  LOCKSTEP_CHECK(!tree_ && !other->tree_, InvalidArgument, what,
                 "with reduction = reproducible each needs backwards of its own");
  LOCKSTEP_CHECK(group_->size() == other->group_->size() && group_->rank() == other->group_->rank(),
                 InvalidArgument, what, "weights are summed over its ", other->group_->size(),
                 " ranks, and this one has ", group_->size());
  check_weights_fit(true);
  join_recording_with_weights();
  // Both have been read from a checkpoint if they are equal and not the same.
  LOCKSTEP_CHECK(!accumulated_weight_.defined() || unit_.is_same(other->unit_) ||
                     (are_equal(unit_, other->unit_) &&
                      are_equal(accumulated_weight_, other->accumulated_weight_)),
                 InvalidArgument, what,
                 "its gradients are of other micro-batches than those of that one, so that no sum "
                 "of weights fits both; give all backwards between two updates a weight through "
                 "the same one");
  counts_by_other_ = true;
  other->joined_.push_back(self_);
  if (!reduces) return true;
  other->begin_backward();  // which learns the sum
  bucket_factor_ = other->bucket_factor_;
  return true;
}

void Reducer::backward(const Tensor& loss, double weight) {
  backward(loss, full({}, weight, {.dtype = DType::f64, .device = group_->device()}),
           weight > 0 ? weight : 0);
}

void Reducer::backward(const Tensor& loss, const Tensor& weight) { backward(loss, weight, 0); }

/// @param known the weight, if the host knows it and it is not 0: then some launches are saved.
void Reducer::backward(const Tensor& loss, const Tensor& weight, double known) {
  LOCKSTEP_CHECK(!running_ && !weighted_, InvalidArgument,
                 "a backward with a weight inside another backward of its "
                 "DistributedDataParallel");
  LOCKSTEP_CHECK(weight.defined() && weight.numel() == 1 && weight.device() == group_->device(),
                 InvalidArgument, "the weight of a backward is one element on ", group_->device(),
                 weight.defined()
                     ? detail::concat(", not ", weight.shape(), " on ", weight.device())
                     : std::string(", not an undefined tensor"));
  LOCKSTEP_CHECK(loss.defined() && loss.numel() == 1 && loss.device() == group_->device(),
                 InvalidArgument, "a backward with a weight begins at a loss of one element on ",
                 group_->device(),
                 loss.defined() ? detail::concat(", not ", loss.shape(), " on ", loss.device())
                                : std::string(", not an undefined tensor"));
  check_weights_fit(true);
  join_recording_with_weights();
  if (!tree_) hear_of_accumulations();  // those without a weight do not go with it
  {
    const NoGradGuard no_recording;
    const autograd::AutocastModeGuard no_casts;
    Weighted weighted;
    weighted.known = tree_ ? 0 : known;
    weighted.weight = weight.detach().to(DType::f64).reshape({});
    const auto one = [&] { return ones({}, weighted.weight.options()); };
    if (tree_) {  // a gradient's bits must not depend on the micro-batches before it
      weighted.unit = one();
    } else if (unit_.defined() && is_unit_sure_) {
      weighted.unit = unit_;
      weighted.is_unit_sure = true;
    } else {
      weighted.unit =
          known > 0 ? weighted.weight : where(gt(weighted.weight, 0.0), weighted.weight, one());
      weighted.is_unit_sure = known > 0 && !unit_.defined();
      // A first weight of 0 is no unit: in units of 1 gradients in f16 would overflow.
      if (unit_.defined())
        weighted.unit = where(gt(accumulated_weight_, 0.0), unit_, weighted.unit);
    }
    if (weighted.unit.is_same(weighted.weight))
      weighted.seed = ones(loss.shape(), loss.options());
    else
      weighted.seed =
          (weighted.weight / weighted.unit).to(loss.dtype()).reshape(loss.shape()).clone();
    weighted_ = std::move(weighted);
  }
  try {
    const Weighing others(*this);
    const GradientUnit unit(tree_ ? Tensor() : weighted_->unit);
    loss.backward(weighted_->seed);
    if (weighted_) keep_weight();  // else the backward has reduced
  } catch (...) {
    weighted_.reset();
    throw;
  }
}

/// Behind a backward that accumulates.
void Reducer::keep_weight() {
  const NoGradGuard no_recording;
  const Weighted weighted = *std::exchange(weighted_, std::nullopt);
  if (tree_) return tree_->keep_weight(weighted.weight);
  unit_ = weighted.unit;
  is_unit_sure_ = weighted.is_unit_sure;
  accumulated_weight_ =
      accumulated_weight_.defined() ? accumulated_weight_ + weighted.weight : weighted.weight;
  is_cleared_ = false;
  for (const auto& self : joined_)
    if (const auto reducer = self.lock()) {
      (*reducer)->unit_ = unit_;
      (*reducer)->is_unit_sure_ = is_unit_sure_;
      (*reducer)->accumulated_weight_ = accumulated_weight_;
      (*reducer)->is_cleared_ = false;
    }
}

/// A launch leaves the weights as the capture did; those of backwards before it would be another
/// step's.
void Reducer::join_recording_with_weights() {
  static constexpr std::string_view began_outside =
      "backwards with weights began outside of it to add up gradients: let it have all backwards "
      "between two updates";
  StepRehearsal* const rehearsal = StepRehearsal::current();
  if (rehearsal && rehearsal->meets(&accumulated_weight_) && accumulated_weight_.defined())
    rehearsal->refuse(began_outside);
  StepRecording* const recording = StepRecording::on(group_->device());
  if (!recording || !recording->meets(&accumulated_weight_)) [[likely]]
    return;
  if (accumulated_weight_.defined()) recording->refuse(std::string(began_outside));
  recording->require([self = std::weak_ptr<Reducer*>(self_)]() -> std::string {
    const auto reducer = self.lock();
    return reducer && (*reducer)->accumulated_weight_.defined() && (*reducer)->has_contributions()
               ? std::string(began_outside)
               : "";
  });
  struct Weights {
    Tensor accumulated, unit;
  };
  const auto left = std::make_shared<Weights>();
  const auto set = [self = std::weak_ptr<Reducer*>(self_)](const Weights& weights) {
    const auto reducer = self.lock();
    if (!reducer) return;
    (*reducer)->accumulated_weight_ = weights.accumulated;
    (*reducer)->unit_ = weights.unit;
    (*reducer)->is_unit_sure_ = false;
  };
  recording->when_abandoned([set, found = Weights{accumulated_weight_, unit_}] { set(found); });
  recording->at_end([self = std::weak_ptr<Reducer*>(self_), left] {
    if (const auto reducer = self.lock())
      *left = {(*reducer)->accumulated_weight_, (*reducer)->unit_};
  });
  recording->after_launch([set, left] { set(*left); });
}

/// Whether there is anything that a backward would add to.
bool Reducer::has_contributions() const {
  if (tree_) return tree_->count() > 0;
  return std::ranges::any_of(leaves_, [](const auto& leaf) { return leaf->has_contributions(); });
}

/// Before a backward.
void Reducer::check_weights_fit(bool is_weighted) {
  const bool accumulates = has_contributions();
  if (!accumulates) {
    // The gradients were cleared: else a micro-batch that used no parameter counts by its weight.
    if (is_cleared_ || !is_weighted) accumulated_weight_ = unit_ = Tensor();
    is_local_.assign(leaves_.size(), false);
  }
  const bool was_weighted = tree_ ? tree_->is_weighted() : accumulated_weight_.defined();
  LOCKSTEP_CHECK(
      !accumulates || was_weighted == is_weighted, InvalidArgument,
      !is_weighted
          ? Weighing::current()
                ? "a backward that has its weight through another DistributedDataParallel, "
                  "which reduces, counts without it for this one, under no_sync(), and would "
                  "be added to gradients of backwards that have one; let both be under "
                  "no_sync(), or none, or drop what this one added up (a discriminator's in a "
                  "generator's step) by its module's zero_grad() before"
                : "a backward without a weight would be added to gradients of backwards that "
                  "have one; give all backwards between two steps a weight"
      : has_accumulated()
          ? "a backward with a weight would be added to gradients of backwards without one; give "
            "all backwards between two steps a weight"
          : "a backward with a weight would be added to averages, of which it cannot tell the "
            "weight; of several backwards between two steps run all but the last under no_sync(), "
            "and call zero_grad() after each step, with set_to_none = true");
  if (!accumulated_weight_.defined()) return;
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    LOCKSTEP_CHECK(!is_local_[i] || leaves_[i]->has_contributions(), InvalidArgument,
                   "the gradient of ", parameters_[i].first,
                   " was cleared since a backward that gave it a weight, and others were not, so "
                   "that no sum of weights fits both; clear all gradients of the module, or none");
}

/// In a backward with a weight: its share in the sum of all ranks, before anything else of it.
void Reducer::share_weights() {
  if (!weighted_) return;
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard no_casts;
  const Tensor& own = weighted_->weight;
  const bool accumulates = accumulated_weight_.defined();
  const bool is_known = weighted_->known > 0 && !accumulates;
  if (!accumulates && group_->size() == 1) GradientUnit::forget();
  if (is_known && group_->size() == 1) return;  // the share is 1, and so is the seed
  Tensor told =
      full({2}, (accumulates ? 1.0 : 0.0) + (has_data_ ? 0.0 : without_backward), own.options());
  total_weight_ = told[0];
  total_weight_.copy_(tree_         ? tree_->weights_with(own)
                      : accumulates ? accumulated_weight_ + own
                                    : own);
  how_many_ = told[1];
  const std::size_t part = 2 * buckets_.size() + 1;
  comm::CollectiveOptions options{.label = "weights of batches", .id = id_of(part)};
  if (is_captured())
    options.renew = [this, part](std::string& name, comm::CollectiveId& id) {
      name = "weights of batches";
      id = id_of(part);
    };
  const comm::Work sum = group_->all_reduce(writable_buffer(told), comm::ReduceOp::sum(), options);
  sum.wait();
  note_time(sum);
  if (!accumulates) exchange_in_common_unit();
  if (tree_)
    return tree_->set_divisor(
        where(gt(total_weight_, 0.0), total_weight_, ones({}, own.options())));
  if (is_known) {
    const double factor = static_cast<double>(group_->size()) * weighted_->known;
    weighted_->seed.copy_((factor / total_weight_).reshape(weighted_->seed.shape()));
    return;
  }
  const Tensor none = zeros({}, own.options());
  const Tensor share =
      where(gt(total_weight_, 0.0), static_cast<double>(group_->size()) / total_weight_, none);
  if (accumulated_weight_.defined())
    bucket_factor_ = weighted_->unit * share;
  else
    weighted_->seed.copy_((own * share).reshape(weighted_->seed.shape()));
}

/// The gradients of this rank are those of the mean over all ranks, times their number. Others,
/// which have accumulated, exchange theirs within backward times their weights.
void Reducer::exchange_in_common_unit() {
  GradientUnit::become([total = total_weight_, how_many = how_many_, ranks = group_->size()] {
    const autograd::AutocastModeGuard no_casts;
    const Tensor any = logical_and(gt(remainder(how_many, without_backward), 0.0), gt(total, 0.0));
    return where(any, total / static_cast<double>(ranks), 1.0);
  });
}

void Reducer::scale_by_weights(const Tensor& array) const {
  if (!bucket_factor_.defined()) return;
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard no_casts;
  Tensor scaled = array;
  const bool is_half = size_of(array.dtype()) < size_of(DType::f32);
  const Tensor factor = bucket_factor_.to(is_half ? DType::f32 : array.dtype());
  if (is_half)
    scaled.copy_(array.to(DType::f32).mul_(factor));
  else
    scaled.mul_(factor);
}

void Reducer::forget_weights() noexcept {
  weighted_.reset();
  accumulated_weight_ = unit_ = bucket_factor_ = Tensor();
}

/// Where no rank has a backward, nor anything accumulated that counts: what a hook keeps from step
/// to step stays. @return whether that is so.
bool Reducer::leave_out_empty_step() {
  const bool is_empty =
      how_many_.item() >= without_backward * group_->size() && !(total_weight_.item() > 0);
  if (!is_empty) return false;
  recorder_.end_backward();
  running_ = false;
  times_of_backward_.reset();
  forget_weights();
  clear_gradients_of_step();
  return true;
}

void Reducer::clear_gradients_of_step() noexcept {
  if (shards_) shards_->clear_gradients();
  for (const auto& leaf : leaves_) leaf->clear_gradient();
  is_local_.assign(leaves_.size(), false);
  begun_.assign(leaves_.size(), false);
}

bool Reducer::reduce_without_backward() {
  check_usable();
  LOCKSTEP_CHECK(!tree_, InvalidArgument,
                 "backward_without_data: with reduction = reproducible each rank has as many "
                 "micro-batches in each step; give a micro-batch a weight of 0 in its place");
  refuse_in_captured_step("a rank without data asks on the host whether others have any,",
                          "such steps run eagerly");
  LOCKSTEP_CHECK(!running_, InvalidArgument,
                 "a step without data inside a backward of its DistributedDataParallel");
  const NoGradGuard no_recording;
  try {
    check_weights_fit(true);
    if (shards_) shards_->check_cleared();
    reset_backward();
    const Tensor none = zeros({}, {DType::f64, group_->device()});
    weighted_ = Weighted{.weight = none,
                         .unit = unit_.defined() ? unit_ : ones({}, none.options()),
                         .seed = none.clone()};
    has_data_ = false;
    share_weights();
    if (leave_out_empty_step()) {
      has_data_ = true;
      return false;
    }
    for (const Bucket& bucket : plan_)
      for (const std::size_t index : bucket.parameters) mark_ready(index);
  } catch (...) {
    has_data_ = true;
    fail_backward(current_message());
    throw;
  }
  finish_backward();
  has_data_ = true;
  return true;
}

}  // namespace lockstep::parallel
