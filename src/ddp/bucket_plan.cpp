#include "lockstep/ddp/bucket_plan.hpp"

#include <algorithm>
#include <ranges>

#include "lockstep/core/error.hpp"

namespace lockstep::ddp {
namespace {

constexpr std::int64_t alignment_bytes = 64;

void check_order(std::size_t count, std::span<const std::size_t> order) {
  std::vector<bool> seen(count, false);
  for (const std::size_t index : order) {
    LOCKSTEP_CHECK(index < count && !seen[index], InvalidArgument,
                   "bucket plan: the order names parameter ", index, " of ", count,
                   index < count ? " twice" : "");
    seen[index] = true;
  }
  LOCKSTEP_CHECK(order.size() == count, InvalidArgument, "bucket plan: the order names ",
                 order.size(), " of ", count, " parameters");
}

/// Gives every gradient its place.
void lay_out(Bucket& bucket, std::span<const ParameterInfo> parameters) {
  const std::int64_t aligned = alignment_bytes / static_cast<std::int64_t>(size_of(bucket.dtype));
  for (const std::size_t index : bucket.parameters) {
    bucket.offsets.push_back(bucket.numel);
    bucket.numel += (parameters[index].numel + aligned - 1) / aligned * aligned;
  }
}

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const ParameterInfo> parameters,
                                 std::span<const std::size_t> ready_order, BucketCaps caps) {
  check_order(parameters.size(), ready_order);
  // From the last to become ready backwards, so that the small bucket is the last one. At most one
  // bucket of each (dtype, device) is open at a time.
  struct Open {
    Bucket bucket;
    std::size_t bytes = 0;
  };
  std::vector<Bucket> closed;
  std::vector<Open> open;
  const auto cap = [&] { return closed.empty() ? caps.last_bytes : caps.bytes; };
  for (const std::size_t index : ready_order | std::views::reverse) {
    const ParameterInfo& info = parameters[index];
    auto it = std::ranges::find_if(open, [&](const Open& candidate) {
      return candidate.bucket.dtype == info.dtype && candidate.bucket.device == info.device;
    });
    if (it == open.end()) {
      open.emplace_back();
      it = std::prev(open.end());
      it->bucket.dtype = info.dtype;
      it->bucket.device = info.device;
    }
    it->bucket.parameters.push_back(index);
    it->bytes += static_cast<std::size_t>(info.numel) * size_of(info.dtype);
    if (it->bytes >= cap()) {
      closed.push_back(std::move(it->bucket));
      open.erase(it);
    }
  }
  for (Open& rest : open) closed.push_back(std::move(rest.bucket));
  std::ranges::reverse(closed);
  for (Bucket& bucket : closed) {
    std::ranges::reverse(bucket.parameters);
    lay_out(bucket, parameters);
  }
  return closed;
}

}  // namespace lockstep::ddp
