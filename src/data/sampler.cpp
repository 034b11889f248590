#include "lockstep/data/sampler.hpp"

#include <numeric>

#include "lockstep/core/error.hpp"
#include "lockstep/data/permutation.hpp"

namespace lockstep::data {
namespace {

std::int64_t check_size(std::int64_t size) {
  LOCKSTEP_CHECK(size > 0, InvalidArgument, "the data set is empty (", size,
                 " samples); at least one sample is needed");
  return size;
}

}  // namespace

SequentialSampler::SequentialSampler(std::int64_t dataset_size) : size_(check_size(dataset_size)) {}

std::vector<std::int64_t> SequentialSampler::order(std::uint64_t) const {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size_));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

RandomSampler::RandomSampler(std::int64_t dataset_size, std::uint64_t seed)
    : size_(check_size(dataset_size)), seed_(seed) {}

std::vector<std::int64_t> RandomSampler::order(std::uint64_t epoch) const {
  return random_permutation(size_, seed_, epoch);
}

}  // namespace lockstep::data
