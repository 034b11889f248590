#include <algorithm>
#include <utility>

#include "core/fnv_hash.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/thread_modes.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/memory.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/parallel/reducer.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "parallel/group_memory.hpp"
#include "parallel/names.hpp"
#include "runtime/step_recording.hpp"

// The arrays of a reducer's buckets: how they are laid out, and laid out again.

namespace lockstep::parallel {

Reducer::BucketState Reducer::make_bucket(const Bucket& plan, std::size_t number) const {
  BucketState bucket;
  if (shares_out())
    bucket.averages = registers_arrays()
                          ? zeros_in_bucket(plan.numel / group_->size(), plan)
                          : empty({plan.numel / group_->size()}, {plan.dtype, plan.device});
  const std::uint64_t layout = lockstep::detail::fnv_hash(
      plan.parameters.data(), plan.parameters.size() * sizeof plan.parameters[0]);
  const auto label = [&](std::size_t names) {  // the layout's number, as names may be left out
    return detail::concat("bucket ", number, " (", names_of(parameters_, plan.parameters, names),
                          ") #", layout % 10'000);
  };
  constexpr std::size_t few = 8;
  bucket.label = label(few);
  bucket.full_label = label(most_names);
  return bucket;
}

/// Where gradients go, unless it is there.
void Reducer::make_array(std::size_t number) {
  BucketState& bucket = buckets_[number];
  if (bucket.array.defined() && !is_from_outside(number)) return;
  bring_back_if_abandoned(number);
  if (bucket.array.defined()) forget_array(number);
  const Bucket& plan = plan_[number];
  // Zeros, so that the gaps between gradients never hold anything.
  set_array(number, zeros_in_bucket(plan.numel, plan));
}

/// Whether an array that comes and goes with each step was there before the one that is captured,
/// without a gradient: launches would write to it when others have its memory.
bool Reducer::is_from_outside(std::size_t number) const {
  StepRecording* const recording = StepRecording::on(group_->device());
  return options_.frees_buckets && recording &&
         !recording->has_made(buckets_[number].array.data_ptr()) &&
         std::ranges::none_of(plan_[number].parameters, [this](std::size_t index) {
           return leaves_[index]->gradient().defined();
         });
}

bool Reducer::registers_arrays() const {
  return options_.registers_buckets && !options_.frees_buckets &&
         comm::registration_granularity(*group_) > 0;
}

namespace {

std::size_t whole_pages(std::size_t bytes, std::size_t page) {
  return (bytes + page - 1) / page * page;
}

}  // namespace

/// Of a plan's dtype, on its device; to be registered, on pages that hold nothing else.
Tensor Reducer::zeros_in_bucket(std::int64_t count, const Bucket& plan) const {
  const TensorOptions options{plan.dtype, plan.device};
  if (!registers_arrays()) return zeros_for(*group_, count, options);
  const std::size_t page = comm::registration_granularity(*group_), element = size_of(plan.dtype);
  const std::size_t bytes = whole_pages(static_cast<std::size_t>(count) * element, page);
  const Tensor pages = zeros({static_cast<std::int64_t>((bytes + page) / element)}, options);
  const auto address = reinterpret_cast<std::uintptr_t>(pages.data_ptr());
  const auto first = static_cast<std::int64_t>((whole_pages(address, page) - address) / element);
  return pages.slice(0, first, first + count);
}

/// On all ranks at once.
void Reducer::register_arrays() {
  if (!registers_arrays()) return;
  const std::size_t page = comm::registration_granularity(*group_);
  std::vector<comm::MemoryRange> ranges;
  const auto add = [&](const Tensor& array) {
    ranges.push_back({array.data_ptr(), whole_pages(array.nbytes(), page)});
  };
  for (const BucketState& bucket : buckets_) {
    add(bucket.array);
    if (shares_out()) add(bucket.averages);
  }
  registration_ = comm::register_memory(*group_, ranges);
}

/// Before the arrays go.
void Reducer::end_registration() noexcept {
  if (!registration_) return;
  wait_for_collectives();
  registration_.reset();
}

void Reducer::set_array(std::size_t number, Tensor array) {
  const NoGradGuard no_recording;
  const autograd::AutocastModeGuard no_casts;
  BucketState& bucket = buckets_[number];
  const Bucket& plan = plan_[number];
  bucket.array = std::move(array);
  if (!shares_out()) bucket.averages = bucket.array;
  for (std::size_t k = 0; k < plan.parameters.size(); ++k) {
    const std::size_t index = plan.parameters[k];
    const auto& [name, parameter] = parameters_[index];
    gradients_[index] = bucket.array.slice(0, plan.offsets[k], plan.offsets[k] + parameter.numel())
                            .reshape(parameter.shape());
    name_memory(gradients_[index].data_ptr(), gradients_[index].nbytes(),
                detail::concat("bucket ", number, ", gradient of ", name));
  }
  bucket.gradients = gradients_of(number, bucket);
}

/// Once its averages are this rank's part, which lies elsewhere.
void Reducer::free_array(std::size_t number) {
  BucketState& bucket = buckets_[number];
  bring_back_if_abandoned(number);
  use_on_current_stream(bucket.array);
  for (const std::size_t index : plan_[number].parameters) leaves_[index]->clear_gradient();
  forget_array(number);
}

void Reducer::forget_array(std::size_t number) {
  BucketState& bucket = buckets_[number];
  bucket.exchange = {};
  bucket.gradients.reset();
  for (const std::size_t index : plan_[number].parameters) gradients_[index] = Tensor();
  bucket.array = Tensor();
}

/// Where a bucket's array comes and goes with a step that is being captured: a capture that is
/// given up leaves the one that was there before, or none. Nothing was ever written to its own.
void Reducer::bring_back_if_abandoned(std::size_t number) {
  StepRecording* const recording = StepRecording::on(group_->device());
  if (!options_.frees_buckets || !recording || !recording->meets(&buckets_[number])) return;
  recording->when_abandoned(
      [self = std::weak_ptr<Reducer*>(self_), number, before = buckets_[number].array] {
        const auto reducer = self.lock();
        if (!reducer) return;
        (*reducer)->forget_array(number);
        if (before.defined()) (*reducer)->set_array(number, before);
      });
}

/// A bucket as its exchange sees it.
std::unique_ptr<GradBucket> Reducer::gradients_of(std::size_t number, const BucketState& bucket) {
  std::vector<Tensor> gradients;
  std::vector<std::string> names;
  for (const std::size_t index : plan_[number].parameters) {
    gradients.push_back(gradients_[index]);
    names.push_back(parameters_[index].first);
  }
  return std::make_unique<GradBucket>(
      number, group_, bucket.array, bucket.averages, std::move(gradients), std::move(names),
      [this, number](std::size_t collective, std::size_t bytes,
                     FunctionRef<comm::Work(const comm::CollectiveOptions&)> start) {
        return start_collective(number, collective, bytes, start);
      });
}

std::vector<ParameterInfo> Reducer::parameter_infos() const {
  std::vector<ParameterInfo> infos;
  for (const auto& [name, tensor] : parameters_)
    infos.push_back({tensor.numel(), tensor.dtype(), tensor.device()});
  return infos;
}

std::vector<Bucket> Reducer::plan_by_sizes(std::span<const std::size_t> ready_order) const {
  return plan_buckets(parameter_infos(), ready_order, options_.bucket_caps,
                      shares_out() ? group_->size() : 1);
}

void Reducer::build(std::vector<Bucket> plan) {
  end_registration();
  plan_ = std::move(plan);
  std::vector<BucketState> former = std::exchange(buckets_, {});
  bucket_of_.assign(parameters_.size(), 0);
  gradients_.assign(parameters_.size(), Tensor());
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    for (const std::size_t index : plan_[b].parameters) bucket_of_[index] = b;
    buckets_.push_back(make_bucket(plan_[b], b));
  }
  if (!options_.frees_buckets)
    for (std::size_t b = 0; b < plan_.size(); ++b) make_array(b);
  register_arrays();
  for (std::size_t i = 0; i < leaves_.size(); ++i) leaves_[i]->set_sink(*this, i);
  for (const BucketState& bucket : former) {
    use_on_current_stream(bucket.array);
    use_on_current_stream(bucket.averages);
  }
}

/// The array may have been allocated on another stream: its memory must not be used again before
/// what this one does with it is done.
void Reducer::use_on_current_stream(const Tensor& array) const {
  if (!array.defined()) return;
  array.impl().storage->record_stream(current_stream(group_->device()));
}

void Reducer::rebuild_in_measured_order() {
  if (rebuilt_) return plan_by_measurements();
  const bool order_may_change = options_.find_unused_parameters && !options_.static_graph;
  if (shares_out() || order_may_change || ready_order_.size() != parameters_.size()) return;
  std::vector<std::int64_t> order(ready_order_.begin(), ready_order_.end());
  const std::string_view own(reinterpret_cast<const char*>(order.data()),
                             order.size() * sizeof(order[0]));
  const std::string agreed = comm::broadcast_bytes(
      *group_, own, 0, detail::concat("order of gradients of replica ", number_));
  LOCKSTEP_CHECK(agreed.size() == own.size(), comm::Mismatch, "rank 0 has ",
                 agreed.size() / sizeof(order[0]), " parameters, this rank ", order.size());
  std::copy(agreed.begin(), agreed.end(), reinterpret_cast<char*>(order.data()));
  build(plan_by_sizes(std::vector<std::size_t>(order.begin(), order.end())));
  rebuilt_ = true;
}

}  // namespace lockstep::parallel
