#include "lockstep/data/sampler.hpp"

#include <numeric>

#include "data/check_size.hpp"
#include "data/signature.hpp"
#include "lockstep/data/permutation.hpp"

namespace lockstep::data {

std::uint64_t Sampler::order_signature() const { return signature_of("custom", size()); }

std::uint64_t Sampler::signature_up_to(std::uint64_t, std::int64_t) const {
  return order_signature();
}

std::vector<std::int64_t> Sampler::order(std::uint64_t epoch) const {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size()));
  indices(epoch, 0, order);
  return order;
}

SequentialSampler::SequentialSampler(std::int64_t dataset_size) : size_(check_size(dataset_size)) {}

void SequentialSampler::indices(std::uint64_t, std::int64_t first,
                                std::span<std::int64_t> out) const {
  std::iota(out.begin(), out.end(), first);
}

std::uint64_t SequentialSampler::order_signature() const {
  return signature_of("sequential", size_);
}

RandomSampler::RandomSampler(std::int64_t dataset_size, std::uint64_t seed)
    : size_(check_size(dataset_size)), seed_(seed) {}

void RandomSampler::indices(std::uint64_t epoch, std::int64_t first,
                            std::span<std::int64_t> out) const {
  const Permutation permutation(size_, seed_, epoch);
  for (std::int64_t& index : out) index = permutation(first++);
}

std::uint64_t RandomSampler::order_signature() const {
  return signature_of("random", size_, seed_);
}

}  // namespace lockstep::data
