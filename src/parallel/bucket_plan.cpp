#include "lockstep/parallel/bucket_plan.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

/// A line of a CPU's cache; on a GPU what blocks of its memory are aligned to, which cuBLASLt has
/// kernels for that it would not take otherwise.
std::int64_t alignment_on(Device device) { return device.is_cpu() ? 64 : 256; }

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
  const std::int64_t aligned =
      alignment_on(bucket.device) / static_cast<std::int64_t>(size_of(bucket.dtype));
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

/// The bucket of a kind that is filled; a new one if there is none.
Planned& open_bucket_like(const ParameterInfo& info, std::vector<Planned>& open) {
  const auto found = std::ranges::find_if(open, [&](const Planned& other) {
    return other.bucket.dtype == info.dtype && other.bucket.device == info.device;
  });
  return found != open.end() ? *found : open.emplace_back(empty_bucket(info));
}

/// Their order is that of the launches: a bucket that waits for a late gradient must not hold back
/// those that are complete before it.
std::vector<Bucket> in_order_of_completion(std::vector<Planned> closed,
                                           std::span<const ParameterInfo> parameters, int parts) {
  std::ranges::sort(closed, {}, &Planned::complete);
  std::vector<Bucket> plan;
  for (Planned& each : closed) {
    lay_out(each.bucket, parameters, parts);
    plan.push_back(std::move(each.bucket));
  }
  return plan;
}

}  // namespace

std::size_t bytes_in_bucket(const ParameterInfo& parameter) {
  const auto element = static_cast<std::int64_t>(size_of(parameter.dtype));
  return static_cast<std::size_t>(
      round_up(parameter.numel * element, alignment_on(parameter.device)));
}

std::vector<Bucket> cut_buckets(std::span<const ParameterInfo> parameters,
                                std::span<const std::size_t> ready_order,
                                std::span<const std::size_t> ends) {
  check_order(parameters.size(), ready_order);
  std::vector<Planned> closed;
  std::size_t place = 0;
  for (const std::size_t end : ends) {
    LOCKSTEP_CHECK(end > place && end <= ready_order.size(), InvalidArgument,
                   "bucket plan: a bucket ends at ", end, " of ", ready_order.size(),
                   " parameters, the one before at ", place);
    std::vector<Planned> open;
    for (; place < end; ++place) {
      const std::size_t index = ready_order[place];
      Planned& planned = open_bucket_like(parameters[index], open);
      planned.bucket.parameters.push_back(index);
      planned.complete = place;
    }
    std::ranges::move(open, std::back_inserter(closed));
  }
  LOCKSTEP_CHECK(place == ready_order.size(), InvalidArgument,
                 "bucket plan: the last bucket ends at ", place, " of ", ready_order.size(),
                 " parameters");
  return in_order_of_completion(std::move(closed), parameters, 1);
}

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
  for (Planned& each : closed) std::ranges::reverse(each.bucket.parameters);
  return in_order_of_completion(std::move(closed), parameters, parts);
}

}  // namespace lockstep::parallel
