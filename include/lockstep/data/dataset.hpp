#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

/// @file
/// What DataLoader asks of a data set.

namespace lockstep::data {

/// A data set is any type with `size()` and `fetch(indices)`, which gathers samples into a batch,
/// by value, of whatever type it likes (a struct of tensors, say). `fetch` is const and is called
/// by several worker threads at once.
template <class D>
concept Dataset = requires(const D& dataset, std::span<const std::int64_t> indices) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  requires std::is_object_v<decltype(dataset.fetch(indices))>;
};

/// The type of a data set's batches.
template <Dataset D>
using BatchOf = decltype(std::declval<const D&>().fetch(std::span<const std::int64_t>()));

}  // namespace lockstep::data
