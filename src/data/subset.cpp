#include "lockstep/data/subset.hpp"

#include <algorithm>
#include <cmath>

#include "data/signature.hpp"
#include "lockstep/data/permutation.hpp"

namespace lockstep::data::detail {

void check_subset(std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t i : indices)
    LOCKSTEP_CHECK(i >= 0 && i < size, InvalidArgument, "sample ", i, " of a data set of ", size);
}

std::uint64_t signature_of(std::span<const std::int64_t> indices) {
  return signature_of_bytes(std::as_bytes(indices));
}

std::vector<std::vector<std::int64_t>> random_parts(std::int64_t size,
                                                    std::span<const std::int64_t> lengths,
                                                    std::uint64_t seed) {
  std::int64_t left = size;
  for (const std::int64_t length : lengths)
    LOCKSTEP_CHECK(length >= 0, InvalidArgument, "random_split: a part of ", length, " samples");
  for (const std::int64_t length : lengths) {
    LOCKSTEP_CHECK(length <= left, InvalidArgument, "random_split: a part of ", length,
                   " samples, where ", left, " of ", size, " are left");
    left -= length;
  }
  LOCKSTEP_CHECK(left == 0, InvalidArgument, "random_split: the parts leave out ", left, " of ",
                 size, " samples; their lengths must add up to the data set's size");
  const std::vector<std::int64_t> order = random_permutation(size, seed, 0);
  std::vector<std::vector<std::int64_t>> parts;
  auto from = order.begin();
  for (const std::int64_t length : lengths) {
    parts.emplace_back(from, from + length);
    from += length;
  }
  return parts;
}

std::vector<std::int64_t> lengths_of(std::int64_t size, std::span<const double> fractions) {
  double sum = 0;
  std::vector<std::int64_t> lengths;
  std::int64_t left = size;
  for (const double fraction : fractions) {
    LOCKSTEP_CHECK(fraction >= 0 && fraction <= 1, InvalidArgument, "random_split: a share of ",
                   fraction, "; shares lie in [0, 1] and add up to 1");
    sum += fraction;
    const double length = std::floor(static_cast<double>(size) * fraction);
    lengths.push_back(std::min(static_cast<std::int64_t>(length), left));
    left -= lengths.back();
  }
  LOCKSTEP_CHECK(std::abs(sum - 1) < 1e-6, InvalidArgument, "random_split: shares add up to ", sum,
                 "; it must be 1");
  for (std::size_t i = 0; left > 0; i = (i + 1) % lengths.size(), --left) ++lengths[i];
  return lengths;
}

}  // namespace lockstep::data::detail
