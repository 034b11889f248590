#include "lockstep/parallel/bucket_reduction.hpp"

namespace lockstep::parallel {
namespace {

comm::Buffer buffer_of(const Tensor& array) {
  return {array.data_ptr(), array.numel(), array.dtype()};
}

class AllReduceBuckets final : public BucketReduction {
 public:
  bool shares_out() const override { return false; }
  comm::Work start(comm::Communicator& group, const Tensor& bucket, const Tensor&,
                   const comm::CollectiveOptions& options) const override {
    return group.all_reduce(buffer_of(bucket), comm::ReduceOp::average(), options);
  }
};

class ReduceScatterBuckets final : public BucketReduction {
 public:
  bool shares_out() const override { return true; }
  comm::Work start(comm::Communicator& group, const Tensor& bucket, const Tensor& averages,
                   const comm::CollectiveOptions& options) const override {
    return group.reduce_scatter(buffer_of(bucket), buffer_of(averages), comm::ReduceOp::average(),
                                {}, options);
  }
};

}  // namespace

std::shared_ptr<const BucketReduction> all_reduce_buckets() {
  static const auto reduction = std::make_shared<const AllReduceBuckets>();
  return reduction;
}

std::shared_ptr<const BucketReduction> reduce_scatter_buckets() {
  static const auto reduction = std::make_shared<const ReduceScatterBuckets>();
  return reduction;
}

}  // namespace lockstep::parallel
