#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/core/dtype.hpp"
#include "lockstep/parallel/bucket_exchange.hpp"
#include "lockstep/parallel/grad_bucket.hpp"

/// @file
/// How the gradients of a bucket become averages over the ranks: what PyTorch calls a communication
/// hook.

namespace lockstep::parallel {

class Reducer;

/// What a Reducer does with each bucket once its gradients are final.
class BucketReduction {
 public:
  virtual ~BucketReduction() = default;

  /// What it is, options included: compared between the ranks.
  virtual std::string name() const = 0;

  /// Whether each rank keeps a part of the averages of a bucket: of as many equal parts as there
  /// are ranks, that of its rank. Otherwise every rank keeps all of them.
  virtual bool shares_out() const { return false; }
  /// Whether the averages are those of an earlier backward: then the same parameters must take part
  /// in each.
  virtual bool is_delayed() const { return false; }
  /// Whether it keeps something of a model's parameters from step to step: then it belongs to one
  /// reducer at a time.
  virtual bool keeps_state() const { return false; }

  /// A coroutine that leaves the averages in `bucket.buffer()`, or this rank's part of them in
  /// `bucket.averages()`, where they must be the same on all ranks. Runs on the thread of the
  /// backward, where nothing is recorded nor cast: up to its first collective once the bucket's
  /// gradients are final, to the end when backward has ended. Of one with several collectives, all
  /// but the last part run while backward goes on: each when the second bucket after it is
  /// launched. So the order of all collectives is the same on all ranks, and must not depend on
  /// what a rank alone knows.
  ///
  /// In a captured step it runs once, and each launch repeats what it queued.
  /// @param bucket stays until the coroutine has ended.
  virtual BucketExchange exchange(GradBucket& bucket) = 0;

 private:
  friend class Reducer;
  std::weak_ptr<Reducer*> reducer_;  // of one that keeps something: the last that took it
};

/// Every rank keeps all averages: one all-reduce a bucket.
std::shared_ptr<BucketReduction> all_reduce_buckets();

/// Each rank keeps its part of the averages: one reduce-scatter a bucket, which is half of an
/// all-reduce. For optimizers that update a part of the parameters on each rank (ZeRO; Rajbhandari,
/// Rasley, Ruwase and He 2020). The same bits as an all-reduce where the backend's sums are the
/// same, as those of all host backends are.
std::shared_ptr<BucketReduction> reduce_scatter_buckets();

/// Every rank keeps all averages, which travel in a smaller dtype: one all-reduce a bucket, of half
/// the bytes of f32 gradients. They are rounded before they are sent, and their average is again.
/// Host backends add up in f32. Gradients beyond the dtype's range become inf (f16: 65,504).
/// @param dtype bf16 or f16. Buckets of it, or of smaller elements, go as they are.
/// @throws InvalidArgument for other dtypes.
std::shared_ptr<BucketReduction> compress_buckets(DType dtype);

/// One of the user's own, from a function: a coroutine, as BucketReduction::exchange says.
/// @param name see BucketReduction::name. @param exchange kept, and what it captures with it.
std::shared_ptr<BucketReduction> reduce_buckets_by(
    std::string name, std::function<BucketExchange(GradBucket&)> exchange);

}  // namespace lockstep::parallel
