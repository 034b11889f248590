#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "lockstep/data/dataset.hpp"

/// @file
/// Data sets of different types as one type.

namespace lockstep::data {

/// A data set of any type whose batches are `B`: what lets data sets of several types be mixed.
///
///     using Any = data::AnyDataset<data::TokenBatch>;
///     const data::ConcatDataset sets(std::vector<Any>{web, books, own});
///
/// Copies share the data set. Samples, random numbers and loader states are those of the data set
/// itself.
template <class B>
class AnyDataset {
 public:
  static constexpr bool checks_indices = true;  ///< or `fetch` of the data set in it does

  /// @param dataset is moved or copied in.
  template <class D>
  requires(!std::same_as<D, AnyDataset> && Dataset<D> && std::same_as<BatchOf<D>, B>)
      AnyDataset(D dataset)
      : dataset_(std::make_shared<const Of<D>>(std::move(dataset))) {}

  /// Number of samples.
  std::int64_t size() const { return dataset_->size(); }
  /// The data set's signature; 0 where it has none.
  std::uint64_t signature() const { return dataset_->signature(); }
  /// A batch. Any number of threads may call it. @throws what the data set does.
  B fetch(std::span<const std::int64_t> indices, const SampleRandom& random) const {
    return dataset_->fetch(indices, random);
  }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual std::int64_t size() const = 0;
    virtual std::uint64_t signature() const = 0;
    virtual B fetch(std::span<const std::int64_t> indices, const SampleRandom& random) const = 0;
  };
  template <class D>
  struct Of final : Interface {
    explicit Of(D given) : dataset(std::move(given)) {}
    std::int64_t size() const override { return static_cast<std::int64_t>(dataset.size()); }
    std::uint64_t signature() const override {
      if constexpr (SignedDataset<D>) return dataset.signature();
      return 0;
    }
    B fetch(std::span<const std::int64_t> indices, const SampleRandom& random) const override {
      return data::fetch(dataset, indices, random);
    }
    D dataset;
  };

  std::shared_ptr<const Interface> dataset_;
};

}  // namespace lockstep::data
