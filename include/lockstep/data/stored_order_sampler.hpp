#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/data/sampler.hpp"

/// @file
/// Samplers that draw an epoch's order as a whole.

namespace lockstep::data {

/// A base for samplers that cannot tell one index without the others: weighted draws, sorting by
/// length, orders read from a file. It keeps the order that was asked for last, which costs 8 bytes
/// a sample and is drawn anew for each epoch, and on a resume. Copies share it.
class StoredOrderSampler : public Sampler {
 public:
  /// @throws what `draw` throws; InvalidArgument if it gives another number of indices than
  /// `size()`, or for positions outside of them.
  void indices(std::uint64_t epoch, std::int64_t first, std::span<std::int64_t> out) const final;

 protected:
  StoredOrderSampler();
  /// The indices of one epoch, `size()` of them, in order: the same whenever it is called for that
  /// epoch, on every rank. One thread at a time calls it.
  virtual std::vector<std::int64_t> draw(std::uint64_t epoch) const = 0;

 private:
  using Order = std::shared_ptr<const std::vector<std::int64_t>>;
  Order stored(std::uint64_t epoch) const;

  struct Last;
  std::shared_ptr<Last> last_;
};

/// Every sample once per epoch, in the order that `random_permutation` gives: a uniform draw among
/// all orders, which RandomSampler's nearly is.
class FisherYatesSampler : public StoredOrderSampler {
 public:
  /// @param dataset_size number of samples.
  /// @param seed chooses the sequence of orders.
  /// @throws InvalidArgument for an empty data set.
  explicit FisherYatesSampler(std::int64_t dataset_size, std::uint64_t seed = 0);
  std::int64_t size() const override { return size_; }
  std::uint64_t order_signature() const override;

 protected:
  std::vector<std::int64_t> draw(std::uint64_t epoch) const override;

 private:
  std::int64_t size_;
  std::uint64_t seed_;
};

}  // namespace lockstep::data
