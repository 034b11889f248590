#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/batch_tensors.hpp"
#include "lockstep/data/dataset.hpp"

/// @file
/// Several data sets as one.

namespace lockstep::data {

namespace detail {

/// Samples of a batch that come from one data set, in one pass through it.
struct ConcatPart {
  std::size_t dataset;
  std::uint64_t pass;
  std::vector<std::int64_t> indices;  // of that data set
  std::vector<std::int64_t> rows;     // of the batch
};

/// Parts in the order in which the batch has the first of each. @param sizes of the data sets.
std::vector<ConcatPart> split_indices(std::span<const std::int64_t> sizes,
                                      std::span<const std::int64_t> indices);
/// One tensor out of those that parts have at the same place, each row where the batch has it.
Tensor join_rows(std::span<const ConcatPart> parts, std::span<const Tensor> tensors);

}  // namespace detail

/// Data sets of one type (of several as AnyDataset), one behind the other: after the samples of the
/// first come those of the second. Their batches must have tensors of the same dtypes and shapes,
/// whose first dimension counts samples; anything else in a batch of samples of several is that of
/// one of them.
///
/// A MixtureSampler mixes them. An index of `size()` or more is a sample in a later pass:
/// `pass * size() + sample` draws other random numbers in each. Data sets without random numbers of
/// their own samples (RandomDataset) draw those of the batch, one after the other.
template <Dataset D>
class ConcatDataset {
 public:
  using Batch = BatchOf<D>;
  static constexpr bool checks_indices = true;
  static_assert(has_tensors<Batch>, "batches of a ConcatDataset are joined tensor by tensor");

  /// @throws InvalidArgument for no data sets.
  explicit ConcatDataset(std::vector<D> datasets) : datasets_(std::move(datasets)) {
    LOCKSTEP_CHECK(!datasets_.empty(), InvalidArgument,
                   "a ConcatDataset needs at least one data set");
    for (const D& each : datasets_) sizes_.push_back(static_cast<std::int64_t>(each.size()));
    for (const std::int64_t size : sizes_) size_ += size;
  }

  /// Number of samples of all data sets.
  std::int64_t size() const { return size_; }
  /// That of each.
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  /// A number that follows from the sizes, and from the signatures that data sets have.
  std::uint64_t signature() const {
    std::uint64_t signature = 0;
    for (const D& each : datasets_) signature = order_signature(each, signature);
    return signature;
  }
  /// A batch in the order of the indices. Any number of threads may call it.
  /// @throws InvalidArgument for a negative index, and tensors that cannot be joined.
  Batch fetch(std::span<const std::int64_t> indices, const SampleRandom& random) const {
    if (indices.empty()) return data::fetch(datasets_.front(), indices, random);
    const auto parts = detail::split_indices(sizes_, indices);
    std::vector<Batch> batches;
    for (const auto& part : parts)
      batches.push_back(data::fetch(datasets_[part.dataset], part.indices,
                                    random.within(part.dataset, part.pass)));
    if (batches.size() > 1) join(parts, batches);
    return std::move(batches.front());
  }

 private:
  // Into the first of the batches.
  static void join(std::span<const detail::ConcatPart> parts, std::span<Batch> batches) {
    std::vector<std::vector<Tensor>> tensors;  // of each batch
    for (Batch& batch : batches) {
      auto& own = tensors.emplace_back();
      auto keep = [&](Tensor& tensor) { own.push_back(tensor); };
      visit_tensors(batch, keep);
      LOCKSTEP_CHECK(own.size() == tensors.front().size(), InvalidArgument, "batches of ",
                     tensors.front().size(), " and of ", own.size(),
                     " tensors do not make one; data sets that are mixed need as many");
    }
    std::size_t place = 0;
    auto replace = [&](Tensor& tensor) {
      std::vector<Tensor> same;
      for (const auto& own : tensors) same.push_back(own[place]);
      tensor = detail::join_rows(parts, same);
      ++place;
    };
    visit_tensors(batches.front(), replace);
  }

  std::vector<D> datasets_;
  std::vector<std::int64_t> sizes_;
  std::int64_t size_ = 0;
};

}  // namespace lockstep::data
