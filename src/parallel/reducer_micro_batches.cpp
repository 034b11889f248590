#include <algorithm>

#include "lockstep/autograd/engine.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/parallel/agreement.hpp"
#include "lockstep/parallel/reducer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "parallel/micro_batch_tree.hpp"

// Reproducible reductions: the gradients of each micro-batch apart, until a tree adds them.

namespace lockstep::parallel {

void Reducer::use_micro_batch_tree() {
  auto tree = std::make_shared<MicroBatchTree>(options_.micro_batches, *group_);
  LOCKSTEP_CHECK(options_.reduction == all_reduce_buckets(), InvalidArgument,
                 "reduction = reproducible in the place of ", options_.reduction->name(),
                 ": both say how gradients are averaged; give one");
  for (const auto& [name, parameter] : parameters_)
    LOCKSTEP_CHECK(parameter.dtype() == DType::f32 || parameter.dtype() == DType::f64,
                   InvalidArgument, "reduction = reproducible: parameter ", name, " is ",
                   parameter.dtype(),
                   ", in which partial sums would be rounded at other places on each number of "
                   "ranks; keep parameters in f32 or f64 (amp::Autocast goes with it)");
  const PhiloxState random = default_generator().state();
  check_same_value(*group_, "seed of the random numbers (reduction = reproducible)", random.seed);
  check_same_value(*group_, "place in the random numbers (reduction = reproducible)",
                   random.offset);
  options_.reduction = tree;
  tree_ = std::move(tree);
}

/// Before a backward. What a gradient holds already belongs to another step.
void Reducer::check_micro_batch(bool reduces) const {
  if (!tree_) return;
  tree_->check_next(reduces);
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    LOCKSTEP_CHECK(!leaves_[i]->gradient().defined(), InvalidArgument, "parameter ",
                   parameters_[i].first,
                   " has a gradient before a micro-batch, to which it would be added in no fixed "
                   "order; call zero_grad() after each step, with set_to_none = true");
}

/// At the start of a backward through a forward that accumulates.
void Reducer::begin_micro_batch() {
  if (running_ || autograd::Engine::reaches(reduce_tag_)) return;
  check_usable();
  check_micro_batch(false);
  if (!weighted_) check_weights_fit(false);
  const std::weak_ptr<Reducer*> self = self_;
  autograd::Engine::queue_callback([self] {
    if (const auto reducer = self.lock()) (*reducer)->finish_micro_batch();
  });
}

void Reducer::finish_micro_batch() {
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard no_casts;
  std::vector<bool> has(leaves_.size());
  std::vector<Tensor> arrays;
  for (const BucketState& bucket : buckets_) arrays.push_back(bucket.array);
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    has[i] = leaves_[i]->gradient().defined();
    if (!has[i]) gradients_[i].zero_();
  }
  tree_->keep(arrays, has);
  for (const auto& leaf : leaves_) leaf->clear_gradient();
}

/// Whether this rank has a gradient for a parameter in this step.
bool Reducer::contributes(std::size_t index) const {
  return leaves_[index]->gradient().defined() || (tree_ && tree_->has(index));
}

}  // namespace lockstep::parallel
