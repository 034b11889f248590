#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// @file
/// In which order a data set's samples are visited.

namespace lockstep::data {

/// Gives the indices to visit in each epoch. A sampler has no state: the order follows from the
/// epoch's number, so that a run resumes anywhere from (epoch, position) alone. DataLoader counts
/// the epochs. One that draws an epoch's order as a whole is a StoredOrderSampler.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Number of indices in every epoch.
  virtual std::int64_t size() const = 0;
  /// Writes the indices at positions `first` to `first + out.size() - 1` of an epoch's order, which
  /// must lie below `size()`. Any number of threads may call it.
  virtual void indices(std::uint64_t epoch, std::int64_t first,
                       std::span<std::int64_t> out) const = 0;
  /// Number of ranks among which the sampler shares the data set; 1: it gives every rank all.
  virtual int world_size() const { return 1; }
  /// Which of them has this share; -1: the sampler does not tell.
  virtual int rank() const { return -1; }
  /// A number that is equal for samplers that give the same orders, and another for nearly all
  /// others: by it a loader knows its state. Into how many shares ranks cut an order makes no
  /// difference. By default it follows from the size alone.
  virtual std::uint64_t order_signature() const;
  /// The same, of samplers that gave the same orders up to the `samples`-th index of an epoch, over
  /// all ranks, whatever they give later. By default it is `order_signature`.
  virtual std::uint64_t signature_up_to(std::uint64_t epoch, std::int64_t samples) const;

  /// The indices of one epoch, in order. @throws OutOfMemory.
  std::vector<std::int64_t> order(std::uint64_t epoch) const;
};

/// 0, 1, 2, ... in every epoch.
class SequentialSampler : public Sampler {
 public:
  /// @param dataset_size number of samples.
  /// @throws InvalidArgument for an empty data set.
  explicit SequentialSampler(std::int64_t dataset_size);
  std::int64_t size() const override { return size_; }
  void indices(std::uint64_t epoch, std::int64_t first, std::span<std::int64_t> out) const override;
  std::uint64_t order_signature() const override;

 private:
  std::int64_t size_;
};

/// Every sample once per epoch, in an order drawn anew for each: a Permutation, so that an epoch of
/// any size begins, or goes on in its middle, at once.
class RandomSampler : public Sampler {
 public:
  /// @param dataset_size number of samples.
  /// @param seed chooses the sequence of orders.
  /// @throws InvalidArgument for an empty data set.
  explicit RandomSampler(std::int64_t dataset_size, std::uint64_t seed = 0);
  std::int64_t size() const override { return size_; }
  void indices(std::uint64_t epoch, std::int64_t first, std::span<std::int64_t> out) const override;
  std::uint64_t order_signature() const override;

 private:
  std::int64_t size_;
  std::uint64_t seed_;
};

}  // namespace lockstep::data
