#include "lockstep/parallel/bucket_plan.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
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

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Gives every gradient its place.
void lay_out(Bucket& bucket, std::span<const ParameterInfo> parameters, int parts) {
  const std::int64_t aligned = alignment_bytes / static_cast<std::int64_t>(size_of(bucket.dtype));
  for (const std::size_t index : bucket.parameters) {
    bucket.offsets.push_back(bucket.numel);
    bucket.numel += round_up(parameters[index].numel, aligned);
  }
  bucket.numel = round_up(bucket.numel, aligned * parts);
}

/// A bucket, and the place in the order at which the last of its gradients is there.
struct Planned {
  Bucket bucket;
  std::size_t complete = 0;
};

Planned empty_bucket(const ParameterInfo& like) {
  Planned planned;
  planned.bucket.dtype = like.dtype;
  planned.bucket.device = like.device;
  return planned;
}

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const ParameterInfo> parameters,
                                 std::span<const std::size_t> ready_order, BucketCaps caps,
                                 int parts) {
  check_order(parameters.size(), ready_order);
  // From the last to become ready backwards, so that the first bucket of each kind that closes, and
  // is small, is its last. At most one bucket of each (dtype, device) is open at a time.
  struct Kind {
    Planned open;
    std::size_t bytes = 0;
    std::size_t cap = 0;
  };
  std::vector<Planned> closed;
  std::vector<Kind> kinds;
  for (std::size_t place = ready_order.size(); place-- > 0;) {
    const std::size_t index = ready_order[place];
    const ParameterInfo& info = parameters[index];
    auto kind = std::ranges::find_if(kinds, [&](const Kind& other) {
      return other.open.bucket.dtype == info.dtype && other.open.bucket.device == info.device;
    });
    if (kind == kinds.end()) {
      kinds.push_back({empty_bucket(info), 0, caps.last_bytes});
      kind = std::prev(kinds.end());
    }
    std::vector<std::size_t>& members = kind->open.bucket.parameters;
    if (members.empty()) kind->open.complete = place;
    members.push_back(index);
    kind->bytes += static_cast<std::size_t>(info.numel) * size_of(info.dtype);
    if (kind->bytes < kind->cap) continue;
    closed.push_back(std::exchange(kind->open, empty_bucket(info)));
    kind->bytes = 0;
    kind->cap = caps.bytes;
  }
  for (Kind& kind : kinds)
    if (!kind.open.bucket.parameters.empty()) closed.push_back(std::move(kind.open));
  // A bucket that waits for a late gradient must not hold back those that are complete before it.
  std::ranges::sort(closed, {}, &Planned::complete);
  std::vector<Bucket> plan;
  for (Planned& each : closed) {
    std::ranges::reverse(each.bucket.parameters);
    lay_out(each.bucket, parameters, parts);
    plan.push_back(std::move(each.bucket));
  }
  return plan;
}

}  // namespace lockstep::parallel
