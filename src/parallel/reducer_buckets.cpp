#include <algorithm>
#include <utility>

#include "core/fnv_hash.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/parallel/reducer.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "tensor/write_note.hpp"

// The arrays of a reducer's buckets: how they are laid out, and laid out again.

namespace lockstep::parallel {

Reducer::BucketState Reducer::make_bucket(const Bucket& plan, std::size_t number) const {
  BucketState bucket;
  // Zeros, so that the gaps between gradients never hold anything.
  bucket.array = zeros({plan.numel}, {plan.dtype, plan.device});
  bucket.averages =
      shares_out() ? empty({plan.numel / group_->size()}, bucket.array.options()) : bucket.array;
  const std::uint64_t layout = lockstep::detail::fnv_hash(
      plan.parameters.data(), plan.parameters.size() * sizeof plan.parameters[0]);
  bucket.label = detail::concat("bucket ", number, " (", names_of(plan.parameters), ") #",
                                layout % 10'000);  // as names may be left out
  return bucket;
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

void Reducer::build(std::span<const std::size_t> ready_order) {
  std::vector<ParameterInfo> infos;
  for (const auto& [name, tensor] : parameters_)
    infos.push_back({tensor.numel(), tensor.dtype(), tensor.device()});
  plan_ = plan_buckets(infos, ready_order, options_.bucket_caps, shares_out() ? group_->size() : 1);

  const NoGradGuard no_recording;
  std::vector<BucketState> buckets(plan_.size());
  bucket_of_.assign(parameters_.size(), 0);
  gradients_.resize(parameters_.size());
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    const Bucket& bucket = plan_[b];
    buckets[b] = make_bucket(bucket, b);
    for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
      const std::size_t index = bucket.parameters[k];
      const auto& [name, parameter] = parameters_[index];
      gradients_[index] =
          buckets[b]
              .array.slice(0, bucket.offsets[k], bucket.offsets[k] + parameter.numel())
              .reshape(parameter.shape());
      name_memory(gradients_[index].data_ptr(), gradients_[index].nbytes(),
                  detail::concat("bucket ", b, ", gradient of ", name));
      bucket_of_[index] = b;
    }
  }
  for (std::size_t b = 0; b < plan_.size(); ++b) buckets[b].gradients = gradients_of(b, buckets[b]);
  for (std::size_t i = 0; i < leaves_.size(); ++i) leaves_[i]->set_sink(*this, i);
  for (BucketState& former : buckets_) {
    use_on_current_stream(former.array);
    use_on_current_stream(former.averages);
  }
  buckets_ = std::move(buckets);
}

/// The array may have been allocated on another stream: its memory must not be used again before
/// what this one does with it is done.
void Reducer::use_on_current_stream(const Tensor& array) const {
  array.impl().storage->record_stream(current_stream(group_->device()));
}

void Reducer::rebuild_in_measured_order() {
  const bool order_may_change = options_.find_unused_parameters && !options_.static_graph;
  if (rebuilt_ || order_may_change || ready_order_.size() != parameters_.size()) return;
  std::vector<std::int64_t> order(ready_order_.begin(), ready_order_.end());
  const std::string_view own(reinterpret_cast<const char*>(order.data()),
                             order.size() * sizeof(order[0]));
  const std::string agreed = comm::broadcast_bytes(
      *group_, own, 0, detail::concat("order of gradients of replica ", number_));
  LOCKSTEP_CHECK(agreed.size() == own.size(), comm::Mismatch, "rank 0 has ",
                 agreed.size() / sizeof(order[0]), " parameters, this rank ", order.size());
  std::copy(agreed.begin(), agreed.end(), reinterpret_cast<char*>(order.data()));
  if (shares_out()) gather_averages();
  build(std::vector<std::size_t>(order.begin(), order.end()));
  if (shares_out()) keep_own_parts();
  rebuilt_ = true;
}

/// Once, so that averages can move to buckets that are shared out otherwise.
void Reducer::gather_averages() {
  std::vector<comm::Work> gathers;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Tensor& array = buckets_[b].array;
    const Tensor& averages = buckets_[b].averages;
    gathers.push_back(
        group_->all_gather({averages.data_ptr(), averages.numel(), averages.dtype()},
                           {array.data_ptr(), array.numel(), array.dtype()}, {},
                           {.label = buckets_[b].label, .id = id_of(buckets_.size() + 1 + b)}));
  }
  for (const comm::Work& gather : gathers) gather.wait();
  for (const BucketState& bucket : buckets_) note_write(bucket.array);
  for (std::size_t i = 0; i < leaves_.size(); ++i) leaves_[i]->set_gradient(gradients_[i]);
}

void Reducer::keep_own_parts() {
  const NoGradGuard no_recording;
  for (BucketState& bucket : buckets_) {
    const std::int64_t part = bucket.averages.numel();
    bucket.averages.copy_(
        bucket.array.slice(0, group_->rank() * part, (group_->rank() + 1) * part));
  }
}

}  // namespace lockstep::parallel
