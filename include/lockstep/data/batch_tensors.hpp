#pragma once

#include <concepts>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// The tensors of a batch, whatever its type.

namespace lockstep::data {

namespace detail {

/// What a method `visit_tensors` may be called with.
struct AnyVisitor {
  void operator()(Tensor&) const {}
};

template <class Batch>
concept VisitsTensors = requires(Batch& batch) {
  batch.visit_tensors(AnyVisitor());
};

template <class Batch>
concept TupleLike = requires {
  std::tuple_size<Batch>::value;
};

/// A path is a range of paths.
template <class Batch>
concept RangeOfOthers =
    std::ranges::range<Batch&> && !std::same_as<std::ranges::range_value_t<Batch&>, Batch>;

}  // namespace detail

/// Calls `visit(tensor)` for each tensor of a batch: a Tensor itself; those of a tuple, a pair or a
/// range, however deep; those that a struct's own `visit_tensors(visit)` tells of:
///
///     struct Pairs {
///       Tensor left, right;
///       void visit_tensors(auto&& visit) { visit(left), visit(right); }
///     };
///
/// Anything else in a batch is passed over.
template <class Batch, class Visit>
void visit_tensors(Batch& batch, Visit& visit) {
  if constexpr (std::same_as<Batch, Tensor>)
    visit(batch);
  else if constexpr (detail::VisitsTensors<Batch>)
    batch.visit_tensors(visit);
  else if constexpr (detail::TupleLike<Batch>)
    std::apply([&](auto&... parts) { (visit_tensors(parts, visit), ...); }, batch);
  else if constexpr (detail::RangeOfOthers<Batch>)
    for (auto& part : batch) visit_tensors(part, visit);
}

namespace detail {

template <class Batch>
constexpr bool has_tensors() {
  if constexpr (std::same_as<Batch, Tensor> || VisitsTensors<Batch>)
    return true;
  else if constexpr (TupleLike<Batch>)
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (has_tensors<std::tuple_element_t<I, Batch>>() || ...);
    }
  (std::make_index_sequence<std::tuple_size_v<Batch>>());
  else if constexpr (RangeOfOthers<Batch>) return has_tensors<std::ranges::range_value_t<Batch&>>();
  else return false;
}

}  // namespace detail

/// True for types of batches in which `visit_tensors` can find tensors.
template <class Batch>
inline constexpr bool has_tensors = detail::has_tensors<Batch>();

}  // namespace lockstep::data
