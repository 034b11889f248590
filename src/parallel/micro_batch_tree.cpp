#include "parallel/micro_batch_tree.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <utility>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

/// Draws that a micro-batch may make before it would repeat the next one's.
constexpr int draws_log2 = 24;

/// Those whose sums are comm::host::fold's.
constexpr std::array<std::string_view, 5> backends_with_tree{"shm", "mpi", "tcp", "thread", "self"};

std::uint64_t draws_before(std::uint64_t micro_batch) { return micro_batch << draws_log2; }

/// The random numbers that the calling thread draws: of a micro-batch of a step.
struct Placed {
  PhiloxState begin;  // of the step's
  std::uint64_t micro_batch;

  bool holds(const PhiloxState& state) const {
    const std::uint64_t from = begin.offset + draws_before(micro_batch);
    return state.seed == begin.seed && state.offset >= from &&
           state.offset - from < draws_before(1);
  }
};
thread_local std::optional<Placed> last_placed;

bool is_power_of_two(int n) { return n > 0 && std::has_single_bit(static_cast<unsigned>(n)); }

}  // namespace

void TensorTree::add(const Tensor& x) {
  Tensor sum = x;
  for (std::size_t n = ++count_; n % 2 == 0; n /= 2) {
    partial_.back().add_(sum);
    sum = std::move(partial_.back());
    partial_.pop_back();
  }
  partial_.push_back(count_ % 2 == 0 ? sum : x.clone());
}

void TensorTree::add_rest_to(const Tensor& last) {
  Tensor sum = last;
  for (; !partial_.empty(); partial_.pop_back()) sum.add_(partial_.back());
  count_ = 0;
}

MicroBatchTree::MicroBatchTree(int micro_batches, const Communicator& group)
    : micro_batches_(micro_batches) {
  LOCKSTEP_CHECK(is_power_of_two(micro_batches), InvalidArgument,
                 "reduction = reproducible adds gradients along a binary tree over micro_batches, "
                 "which is ",
                 micro_batches, "; give a power of two, the same for all numbers of ranks");
  LOCKSTEP_CHECK(is_power_of_two(group.size()) && group.size() <= micro_batches, InvalidArgument,
                 "reduction = reproducible over ", group.size(), " ranks and ", micro_batches,
                 " micro_batches: ranks must have equal subtrees of them; give a power of two of "
                 "ranks, at most as many as micro-batches, or reduction = standard");
  LOCKSTEP_CHECK(
      group.device().is_cpu() &&
          std::ranges::find(backends_with_tree, group.backend()) != backends_with_tree.end(),
      InvalidArgument, "reduction = reproducible over ", group.backend(), " on ", group.device(),
      ", which adds in an order of its own; train on CPUs, with CommunicatorOptions::backend "
      "\"mpi\" or \"tcp\", or \"shm\" on one host, or give reduction = standard");
  own_ = micro_batches / group.size();
  first_ = group.rank() * own_;
}

std::string MicroBatchTree::name() const {
  return detail::concat("sum along a tree over ", micro_batches_, " micro-batches");
}

BucketExchange MicroBatchTree::exchange(GradBucket& bucket) {
  Tensor sum = bucket.buffer();
  if (!buckets_.empty()) buckets_[bucket.index()].add_rest_to(sum);
  const Tensor divisor = divisor_;
  co_await bucket.all_reduce(sum, comm::ReduceOp::sum());
  if (divisor.defined())
    sum.div_(divisor.to(sum.dtype()));
  else
    sum.div_(static_cast<double>(micro_batches_));
}

void MicroBatchTree::check_next(bool reduces) const {
  LOCKSTEP_CHECK(reduces == (count_ + 1 == own_), InvalidArgument, "micro-batch ", count_ + 1,
                 " of a step, of which each rank has ", own_, " (micro_batches is ", micro_batches_,
                 " over all ranks): the last one, and only that, runs outside of no_sync()");
}

void MicroBatchTree::keep(std::span<const Tensor> arrays, const std::vector<bool>& has) {
  buckets_.resize(arrays.size());
  has_.resize(has.size());
  for (std::size_t b = 0; b < arrays.size(); ++b) buckets_[b].add(arrays[b]);
  for (std::size_t i = 0; i < has.size(); ++i) has_[i] = has_[i] || has[i];
  ++count_;
}

void MicroBatchTree::keep_weight(const Tensor& weight) {
  weights_.add(weight);
  is_weighted_ = true;
}

Tensor MicroBatchTree::weights_with(const Tensor& last) {
  Tensor sum = last.clone();
  weights_.add_rest_to(sum);
  return sum;
}

void MicroBatchTree::begin_forward() {
  if (placed_ == count_) return;  // further forwards of a micro-batch draw what comes next
  Generator& generator = default_generator();
  const auto index = static_cast<std::uint64_t>(first_ + count_);
  placed_ = count_;
  // A model of another tree may have begun the micro-batch, which goes on in this one.
  if (last_placed && last_placed->micro_batch == index && last_placed->holds(generator.state())) {
    if (!begin_) begin_ = last_placed->begin;
    return;
  }
  if (!begin_) begin_ = generator.state();
  last_placed = {*begin_, index};
  generator.set_state({begin_->seed, begin_->offset + draws_before(index)});
}

std::string MicroBatchTree::describe_random_numbers() const {
  if (!begin_) return {};
  return detail::concat("random numbers of seed ", begin_->seed, " from place ", begin_->offset);
}

void MicroBatchTree::end_step() {
  if (begin_)
    default_generator().set_state(
        {begin_->seed, begin_->offset + draws_before(static_cast<std::uint64_t>(micro_batches_))});
  clear();
}

void MicroBatchTree::clear() noexcept {
  if (begin_ && last_placed && last_placed->begin.seed == begin_->seed &&
      last_placed->begin.offset == begin_->offset)
    last_placed.reset();  // the step's
  count_ = 0;
  is_weighted_ = false;
  buckets_.clear();
  weights_ = {};
  has_.clear();
  divisor_ = Tensor();
  begin_.reset();
  placed_ = -1;
}

}  // namespace lockstep::parallel
