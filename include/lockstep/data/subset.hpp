#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"

/// @file
/// Some samples of a data set as one, and a data set cut at random.

namespace lockstep::data {

namespace detail {

/// @throws InvalidArgument for an index outside [0, size).
void check_subset(std::span<const std::int64_t> indices, std::int64_t size);
/// A number that follows from the indices.
std::uint64_t signature_of(std::span<const std::int64_t> indices);
/// Positions of an order drawn at random, cut into parts of these lengths.
/// @throws InvalidArgument unless none is negative and they add up to `size`.
std::vector<std::vector<std::int64_t>> random_parts(std::int64_t size,
                                                    std::span<const std::int64_t> lengths,
                                                    std::uint64_t seed);
/// Lengths of parts in these proportions: each rounded down, and what is left over handed out one
/// by one from the first on. @throws InvalidArgument unless none is negative and they add up to 1.
std::vector<std::int64_t> lengths_of(std::int64_t size, std::span<const double> fractions);

}  // namespace detail

/// Some samples of a data set, in an order of one's own: sample i is sample `indices[i]` of it. An
/// index may come several times. Copies share the indices; random numbers of a RandomDataset's
/// samples are those that they draw in the whole.
template <Dataset D>
class Subset {
 public:
  /// @throws InvalidArgument for an index outside of the data set.
  Subset(D dataset, std::vector<std::int64_t> indices)
      : dataset_(std::move(dataset)),
        indices_(std::make_shared<const std::vector<std::int64_t>>(std::move(indices))) {
    detail::check_subset(*indices_, static_cast<std::int64_t>(dataset_.size()));
  }

  /// Number of samples.
  std::int64_t size() const { return static_cast<std::int64_t>(indices_->size()); }
  /// Which of the data set's they are.
  const std::vector<std::int64_t>& indices() const { return *indices_; }
  /// The whole.
  const D& dataset() const { return dataset_; }
  /// A number that follows from the indices, and the signature of a data set that has one.
  std::uint64_t signature() const {
    return order_signature(dataset_, detail::signature_of(*indices_));
  }
  /// A batch. Any number of threads may call it.
  /// @throws InvalidArgument for an index outside of the subset, and what the data set does.
  BatchOf<D> fetch(std::span<const std::int64_t> indices, const SampleRandom& random) const {
    return data::fetch(dataset_, places_of(indices), random);
  }
  /// The same of a data set that draws no random numbers of its samples.
  BatchOf<D> fetch(std::span<const std::int64_t> indices) const requires(!RandomDataset<D>) {
    return dataset_.fetch(places_of(indices));
  }

 private:
  std::vector<std::int64_t> places_of(std::span<const std::int64_t> indices) const {
    detail::check_subset(indices, size());
    std::vector<std::int64_t> places;
    places.reserve(indices.size());
    for (const std::int64_t i : indices) places.push_back((*indices_)[static_cast<std::size_t>(i)]);
    return places;
  }

  D dataset_;
  std::shared_ptr<const std::vector<std::int64_t>> indices_;
};

/// Cuts a data set into disjoint subsets, whose samples are drawn at random: the same for the same
/// seed on every rank and machine. Whole numbers are the parts' lengths, others their shares of the
/// whole; what rounding these down leaves over goes to the first parts, a sample each.
///
///     const auto parts = data::random_split(dataset, {50'000, 10'000});
///     const auto same = data::random_split(dataset, {0.9, 0.1});
///
/// @throws InvalidArgument for a negative part, and unless lengths add up to the data set's size,
/// and shares to 1.
template <Dataset D, class T>
requires(std::is_integral_v<T> || std::is_same_v<T, double>) std::vector<Subset<D>> random_split(
    const D& dataset, std::span<const T> parts, std::uint64_t seed = 0) {
  const auto size = static_cast<std::int64_t>(dataset.size());
  std::vector<std::int64_t> lengths;
  if constexpr (std::is_same_v<T, double>)
    lengths = detail::lengths_of(size, parts);
  else
    lengths.assign(parts.begin(), parts.end());
  std::vector<Subset<D>> subsets;
  for (auto& part : detail::random_parts(size, lengths, seed))
    subsets.emplace_back(dataset, std::move(part));
  return subsets;
}
template <Dataset D, class T>
std::vector<Subset<D>> random_split(const D& dataset, const std::vector<T>& parts,
                                    std::uint64_t seed = 0) {
  return random_split(dataset, std::span<const T>(parts), seed);
}
template <Dataset D, class T>
std::vector<Subset<D>> random_split(const D& dataset, std::initializer_list<T> parts,
                                    std::uint64_t seed = 0) {
  return random_split(dataset, std::span<const T>(parts.begin(), parts.size()), seed);
}

}  // namespace lockstep::data
