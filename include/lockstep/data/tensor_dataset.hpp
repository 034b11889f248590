#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Samples that lie in memory as tensors.

namespace lockstep::data {

/// Rows of each of a TensorDataset's tensors, in the same order.
struct TensorBatch {
  std::vector<Tensor> tensors;
  /// The rows of one tensor: by convention 0 are the inputs, 1 the targets.
  /// @throws InvalidArgument for an index out of range.
  const Tensor& operator[](std::size_t i) const {
    LOCKSTEP_CHECK(i < tensors.size(), InvalidArgument, "batch[", i, "]: the data set has ",
                   tensors.size(), " tensors");
    return tensors[i];
  }
  /// For DataLoader, which puts them on a device.
  void visit_tensors(auto&& visit) {
    for (Tensor& each : tensors) visit(each);
  }
};

/// Tensors whose first dimension counts samples: sample i is row i of each.
class TensorDataset {
 public:
  /// @param tensors at least one, on the CPU; copied only where they are not contiguous.
  /// @throws InvalidArgument for no tensors, no samples, scalars, unequal counts or other devices.
  explicit TensorDataset(const std::vector<Tensor>& tensors);

  /// Number of samples.
  std::int64_t size() const { return tensors_.front().size(0); }
  /// A number that follows from the shapes, the dtypes and some of the bytes.
  std::uint64_t signature() const;
  /// Copies rows into new tensors of shape [indices, ...]. Any number of threads may call it.
  /// @throws InvalidArgument for an index out of range.
  TensorBatch fetch(std::span<const std::int64_t> indices) const;

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace lockstep::data
