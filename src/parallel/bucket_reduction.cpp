#include "lockstep/parallel/bucket_reduction.hpp"

#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

class AllReduceBuckets final : public BucketReduction {
 public:
  std::string name() const override { return "all-reduce"; }
  BucketExchange exchange(GradBucket& bucket) override {
    co_await bucket.all_reduce(bucket.buffer());
  }
};

class ReduceScatterBuckets final : public BucketReduction {
 public:
  std::string name() const override { return "reduce-scatter"; }
  bool shares_out() const override { return true; }
  BucketExchange exchange(GradBucket& bucket) override {
    co_await bucket.reduce_scatter(bucket.buffer(), bucket.averages());
  }
};

class CompressBuckets final : public BucketReduction {
 public:
  explicit CompressBuckets(DType dtype) : dtype_(dtype) {}
  std::string name() const override { return detail::concat("all-reduce in ", dtype_); }
  BucketExchange exchange(GradBucket& bucket) override {
    Tensor all = bucket.buffer();
    if (size_of(all.dtype()) <= size_of(dtype_)) {
      co_await bucket.all_reduce(all);
      co_return;
    }
    const Tensor averages = co_await bucket.all_reduce(all.to(dtype_));
    all.copy_(averages);
  }

 private:
  DType dtype_;
};

class FunctionReduction final : public BucketReduction {
 public:
  FunctionReduction(std::string name, std::function<BucketExchange(GradBucket&)> exchange)
      : name_(std::move(name)), exchange_(std::move(exchange)) {}
  std::string name() const override { return name_; }
  BucketExchange exchange(GradBucket& bucket) override { return exchange_(bucket); }

 private:
  std::string name_;
  std::function<BucketExchange(GradBucket&)> exchange_;
};

}  // namespace

std::shared_ptr<BucketReduction> all_reduce_buckets() {
  static const auto reduction = std::make_shared<AllReduceBuckets>();
  return reduction;
}

std::shared_ptr<BucketReduction> reduce_scatter_buckets() {
  static const auto reduction = std::make_shared<ReduceScatterBuckets>();
  return reduction;
}

std::shared_ptr<BucketReduction> compress_buckets(DType dtype) {
  LOCKSTEP_CHECK(dtype == DType::bf16 || dtype == DType::f16, InvalidArgument,
                 "compress_buckets: gradients travel in bf16 or f16, not in ", dtype);
  return std::make_shared<CompressBuckets>(dtype);
}

std::shared_ptr<BucketReduction> reduce_buckets_by(
    std::string name, std::function<BucketExchange(GradBucket&)> exchange) {
  LOCKSTEP_CHECK(exchange, InvalidArgument, "reduce_buckets_by: there is no function for ", name);
  return std::make_shared<FunctionReduction>(std::move(name), std::move(exchange));
}

}  // namespace lockstep::parallel
