#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/data/sample_random.hpp"

/// @file
/// What DataLoader asks of a data set.

namespace lockstep::data {

/// A data set whose `fetch` takes the random numbers of its samples.
template <class D>
concept RandomDataset = requires(const D& dataset, std::span<const std::int64_t> indices,
                                 const SampleRandom& random) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  requires std::is_object_v<decltype(dataset.fetch(indices, random))>;
};

/// A data set is any type with `size()` and `fetch(indices)`, which gathers samples into a batch,
/// by value, of whatever type it likes (a struct of tensors, say). `fetch` is const and is called
/// by several worker threads at once.
///
/// One that draws random numbers takes them from `fetch(indices, random)`, sample by sample
/// (SampleRandom::of): they are then the same for any number of workers and ranks. Without that,
/// the thread's default generator stands at the batch's first sample while `fetch` runs: its
/// numbers are the same for any number of workers, and others for each batch, rank and epoch.
template <class D>
concept Dataset = RandomDataset<D> ||
    requires(const D& dataset, std::span<const std::int64_t> indices) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  requires std::is_object_v<decltype(dataset.fetch(indices))>;
};

/// A batch of a data set.
template <Dataset D>
auto fetch(const D& dataset, std::span<const std::int64_t> indices, const SampleRandom& random) {
  if constexpr (RandomDataset<D>)
    return dataset.fetch(indices, random);
  else
    return dataset.fetch(indices);
}

/// The type of a data set's batches.
template <Dataset D>
using BatchOf = decltype(fetch(std::declval<const D&>(), std::span<const std::int64_t>(),
                               std::declval<const SampleRandom&>()));

}  // namespace lockstep::data
