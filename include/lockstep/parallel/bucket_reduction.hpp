#pragma once

#include <memory>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// How the gradients of a bucket become averages over the ranks.

namespace lockstep::parallel {

/// What a Reducer does with a bucket once its gradients are final. Has no state of its own, so
/// reducers may share one.
class BucketReduction {
 public:
  virtual ~BucketReduction() = default;

  /// Whether each rank keeps a part of the averages of a bucket: of as many equal parts as there
  /// are ranks, that of its rank. Otherwise every rank keeps all of them.
  virtual bool shares_out() const = 0;

  /// Starts to average `bucket` over the ranks.
  /// @param bucket the array; 1-D, and garbage afterwards unless it is `averages`.
  /// @param averages where this rank's part goes; the bucket itself where nothing is shared out.
  /// Both stay until the work is done.
  virtual comm::Work start(comm::Communicator& group, const Tensor& bucket, const Tensor& averages,
                           const comm::CollectiveOptions& options) const = 0;
};

/// Every rank keeps all averages: one all-reduce a bucket.
std::shared_ptr<const BucketReduction> all_reduce_buckets();

/// Each rank keeps its part of the averages: one reduce-scatter a bucket, which is half of an
/// all-reduce. For optimizers that update a part of the parameters on each rank (ZeRO; Rajbhandari,
/// Rasley, Ruwase and He 2020). The same bits as an all-reduce where the backend's sums are the
/// same, as those of all host backends are.
std::shared_ptr<const BucketReduction> reduce_scatter_buckets();

}  // namespace lockstep::parallel
