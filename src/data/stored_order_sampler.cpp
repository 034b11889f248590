#include "lockstep/data/stored_order_sampler.hpp"

#include <algorithm>
#include <mutex>

#include "data/check_size.hpp"
#include "data/signature.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/permutation.hpp"

namespace lockstep::data {

struct StoredOrderSampler::Last {
  std::mutex mutex;
  std::uint64_t epoch = 0;
  Order order;
};

StoredOrderSampler::StoredOrderSampler() : last_(std::make_shared<Last>()) {}

StoredOrderSampler::Order StoredOrderSampler::stored(std::uint64_t epoch) const {
  const std::scoped_lock lock(last_->mutex);
  if (last_->order && last_->epoch == epoch) return last_->order;
  last_->order.reset();  // two at a time would cost twice the memory
  auto order = std::make_shared<const std::vector<std::int64_t>>(draw(epoch));
  LOCKSTEP_CHECK(static_cast<std::int64_t>(order->size()) == size(), InvalidArgument,
                 "the sampler gave ", order->size(), " indices for epoch ", epoch,
                 ", but its size is ", size(), "; the two must agree in every epoch");
  last_->epoch = epoch;
  last_->order = order;
  return order;
}

void StoredOrderSampler::indices(std::uint64_t epoch, std::int64_t first,
                                 std::span<std::int64_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  LOCKSTEP_CHECK(first >= 0 && count <= size() - first, InvalidArgument, count,
                 " indices from position ", first, " on are outside of an order of ", size());
  const Order order = stored(epoch);
  std::copy_n(order->begin() + static_cast<std::ptrdiff_t>(first), count, out.begin());
}

FisherYatesSampler::FisherYatesSampler(std::int64_t dataset_size, std::uint64_t seed)
    : size_(check_size(dataset_size)), seed_(seed) {}

std::uint64_t FisherYatesSampler::order_signature() const {
  return signature_of("fisher-yates", size_, seed_);
}

std::vector<std::int64_t> FisherYatesSampler::draw(std::uint64_t epoch) const {
  return random_permutation(size_, seed_, epoch);
}

}  // namespace lockstep::data
