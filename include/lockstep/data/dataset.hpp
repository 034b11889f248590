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
///
/// It is asked for samples 0 to size() - 1 alone, unless `static constexpr bool checks_indices =
/// true` says that `fetch` checks them, as where others have a meaning (ConcatDataset).
///
/// With a `signature()` (SignedDataset) a loader's state of another data set is refused even if it
/// has as many samples.
template <class D>
concept Dataset = RandomDataset<D> ||
    requires(const D& dataset, std::span<const std::int64_t> indices) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  requires std::is_object_v<decltype(dataset.fetch(indices))>;
};

/// Checks what a data set is asked for. @throws InvalidArgument for an index outside 0 to size - 1.
void check_indices(std::span<const std::int64_t> indices, std::int64_t size);

/// A batch of a data set. @throws InvalidArgument for a sample that it does not have, and what its
/// `fetch` throws.
template <Dataset D>
auto fetch(const D& dataset, std::span<const std::int64_t> indices, const SampleRandom& random) {
  if constexpr (!requires { requires D::checks_indices; })
    check_indices(indices, static_cast<std::int64_t>(dataset.size()));
  if constexpr (RandomDataset<D>)
    return dataset.fetch(indices, random);
  else
    return dataset.fetch(indices);
}

/// A data set that can be told from others: `signature()` gives a number that follows from its
/// contents and options. A loader asks once.
template <class D>
concept SignedDataset = requires(const D& dataset) {
  { dataset.signature() } -> std::convertible_to<std::uint64_t>;
};

/// A number, never 0, that tells a data set in an order from others.
/// @param size of the data set. @param signature its own; 0 where it has none.
/// @param order what Sampler::order_signature gave.
std::uint64_t order_signature(std::int64_t size, std::uint64_t signature, std::uint64_t order);
/// A data set's signature; 0 where it is no SignedDataset: then its size alone counts.
template <Dataset D>
std::uint64_t signature_of_dataset(const D& dataset) {
  if constexpr (SignedDataset<D>) return dataset.signature();
  return 0;
}
/// The number of a data set in an order.
template <Dataset D>
std::uint64_t order_signature(const D& dataset, std::uint64_t order) {
  return order_signature(static_cast<std::int64_t>(dataset.size()), signature_of_dataset(dataset),
                         order);
}

/// The type of a data set's batches.
template <Dataset D>
using BatchOf = decltype(fetch(std::declval<const D&>(), std::span<const std::int64_t>(),
                               std::declval<const SampleRandom&>()));

}  // namespace lockstep::data
