#include "lockstep/parallel/grad_bucket.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"
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
  return {start("all_reduce", x.nbytes(),
                [&](const comm::CollectiveOptions& options) {
                  return group_->all_reduce(buffer, reduction, options);
                }),
          x,
          {},
          started_.back().awaited};
}

TensorWork GradBucket::reduce_scatter(const Tensor& x, const Tensor& part,
                                      comm::ReduceOp reduction) {
  const comm::Buffer input = checked_buffer("GradBucket::reduce_scatter", x, *group_);
  const comm::Buffer output = checked_buffer("GradBucket::reduce_scatter", part, *group_);
  return {start("reduce_scatter", x.nbytes(),
                [&](const comm::CollectiveOptions& options) {
                  return group_->reduce_scatter(input, output, reduction, {}, options);
                }),
          part,
          {x},
          started_.back().awaited};
}

TensorWork GradBucket::all_gather(const Tensor& part, const Tensor& whole) {
  const comm::Buffer input = checked_buffer("GradBucket::all_gather", part, *group_);
  const comm::Buffer output = checked_buffer("GradBucket::all_gather", whole, *group_);
  return {start("all_gather", whole.nbytes(),
                [&](const comm::CollectiveOptions& options) {
                  return group_->all_gather(input, output, {}, options);
                }),
          whole,
          {part},
          started_.back().awaited};
}

void GradBucket::check_awaited() const {
  const auto forgotten =
      std::ranges::find_if(started_, [](const auto& it) { return !*it.awaited; });
  LOCKSTEP_CHECK(forgotten == started_.end(), InvalidArgument, "its collective ",
                 forgotten - started_.begin() + 1, " of ", started_.size(), ", ", forgotten->op,
                 ", was started and never awaited, so that gradients would be what each rank had "
                 "at that moment; write co_await before it, or call its wait()");
}

}  // namespace lockstep::parallel
