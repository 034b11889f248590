#include "lockstep/parallel/grad_bucket.hpp"

#include "lockstep/parallel/writable_buffer.hpp"
#include "parallel/checks.hpp"

namespace lockstep::parallel {
namespace {

comm::Buffer checked_buffer(const char* op, const Tensor& x, const Communicator& group) {
  check_on_device_of(op, x, group);
  return writable_buffer(x);
}

}  // namespace

TensorWork GradBucket::all_reduce(const Tensor& x, comm::ReduceOp reduction) {
  const comm::Buffer buffer = checked_buffer("GradBucket::all_reduce", x, *group_);
  return {start(x.nbytes(),
                [&](const comm::CollectiveOptions& options) {
                  return group_->all_reduce(buffer, reduction, options);
                }),
          x};
}

TensorWork GradBucket::reduce_scatter(const Tensor& x, const Tensor& part,
                                      comm::ReduceOp reduction) {
  const comm::Buffer input = checked_buffer("GradBucket::reduce_scatter", x, *group_);
  const comm::Buffer output = checked_buffer("GradBucket::reduce_scatter", part, *group_);
  return {start(x.nbytes(),
                [&](const comm::CollectiveOptions& options) {
                  return group_->reduce_scatter(input, output, reduction, {}, options);
                }),
          part,
          {x}};
}

TensorWork GradBucket::all_gather(const Tensor& part, const Tensor& whole) {
  const comm::Buffer input = checked_buffer("GradBucket::all_gather", part, *group_);
  const comm::Buffer output = checked_buffer("GradBucket::all_gather", whole, *group_);
  return {start(whole.nbytes(),
                [&](const comm::CollectiveOptions& options) {
                  return group_->all_gather(input, output, {}, options);
                }),
          whole,
          {part}};
}

}  // namespace lockstep::parallel
