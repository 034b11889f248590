#include "lockstep/parallel/measured_plan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>

namespace lockstep::parallel {
namespace {

/// Prefixes of the order: what the cuts are made of.
class Prefixes {
 public:
  Prefixes(std::span<const ParameterInfo> parameters, std::span<const std::size_t> order,
           const BackwardTimes& times)
      : cost_(times.cost), ready_(order.size() + 1, 0), bytes_(ready_), kind_(order.size() + 1, 0) {
    for (std::size_t k = 0; k < order.size(); ++k) {
      const ParameterInfo& info = parameters[order[k]];
      ready_[k + 1] = std::max(ready_[k], times.ready[order[k]]);
      bytes_[k + 1] = bytes_[k] + static_cast<double>(bytes_in_bucket(info));
      kind_[k] = std::uint64_t{1} << static_cast<unsigned>(info.dtype);
    }
  }

  std::size_t count() const { return ready_.size() - 1; }

  struct Piece {
    double end;
    std::size_t begin;
  };
  /// The last piece of a prefix that ends first, where the prefixes before it end at `ends`, which
  /// grow.
  Piece best_last_piece(std::size_t prefix, std::span<const double> ends) const {
    Piece best{std::numeric_limits<double>::infinity(), 0};
    std::uint64_t kinds = 0;
    for (std::size_t begin = prefix; begin-- > 0;) {
      kinds |= kind_[begin];
      const double end = std::max(ends[begin], ready_[prefix]) +
                         std::popcount(kinds) * cost_.latency +
                         (bytes_[prefix] - bytes_[begin]) * cost_.seconds_per_byte;
      if (end < best.end) best = {end, begin};
      if (ends[begin] <= ready_[prefix]) break;  // a longer piece starts no earlier
    }
    return best;
  }

 private:
  MessageCost cost_;
  std::vector<double> ready_, bytes_;
  std::vector<std::uint64_t> kind_;
};

double earliest_end(const Prefixes& prefixes) {
  std::vector<double> ends{0};
  for (std::size_t prefix = 1; prefix <= prefixes.count(); ++prefix)
    ends.push_back(prefixes.best_last_piece(prefix, ends).end);
  return ends.back();
}

}  // namespace

std::vector<BucketSpan> predict(std::span<const Bucket> buckets, const BackwardTimes& times) {
  std::vector<BucketSpan> spans;
  double free = 0, complete = 0;
  for (const Bucket& bucket : buckets) {
    BucketSpan span;
    for (const std::size_t index : bucket.parameters)
      span.ready = std::max(span.ready, times.ready[index]);
    complete = std::max(complete, span.ready);  // launched in order
    span.start = std::max(complete, free);
    span.end = free = span.start + times.cost.seconds(static_cast<double>(bucket.bytes()));
    spans.push_back(span);
  }
  return spans;
}

std::vector<BucketSpan> predict_at_best(std::span<const ParameterInfo> parameters,
                                        std::span<const std::size_t> order,
                                        const BackwardTimes& times) {
  std::vector<std::size_t> each(order.size());
  std::iota(each.begin(), each.end(), std::size_t{1});
  BackwardTimes without_latency = times;
  without_latency.cost.latency = 0;
  return predict(cut_buckets(parameters, order, each), without_latency);
}

double hidden_share(std::span<const BucketSpan> spans, double computation_end) {
  double total = 0, hidden = 0;
  for (const BucketSpan& span : spans) {
    total += span.end - span.start;
    hidden += std::max(0.0, std::min(span.end, computation_end) - span.start);
  }
  return total > 0 ? hidden / total : 1;
}

std::vector<std::size_t> order_by_times(std::span<const std::size_t> order,
                                        const BackwardTimes& times) {
  std::vector<std::size_t> sorted(order.begin(), order.end());
  std::ranges::stable_sort(sorted, {}, [&](std::size_t index) { return times.ready[index]; });
  return sorted;
}

std::vector<std::size_t> cut_for_earliest_end(std::span<const ParameterInfo> parameters,
                                              std::span<const std::size_t> order,
                                              const BackwardTimes& times, double tolerance) {
  if (order.empty()) return {};
  const Prefixes prefixes(parameters, order, times);
  const double limit = earliest_end(prefixes) + tolerance;
  // Ends of the prefixes in at most so many pieces, and where the last of them begins.
  std::vector<double> ends(order.size() + 1, std::numeric_limits<double>::infinity());
  ends[0] = 0;
  std::vector<std::vector<std::size_t>> begins;
  while (ends.back() > limit) {
    const std::vector<double> fewer = ends;
    std::vector<std::size_t> begin(order.size() + 1);
    for (std::size_t prefix = 1; prefix <= order.size(); ++prefix) {
      const Prefixes::Piece piece = prefixes.best_last_piece(prefix, fewer);
      begin[prefix] = prefix;  // as with fewer pieces
      if (piece.end >= fewer[prefix]) continue;
      ends[prefix] = piece.end;
      begin[prefix] = piece.begin;
    }
    begins.push_back(std::move(begin));
  }
  std::vector<std::size_t> cuts;
  std::size_t end = order.size();
  for (std::size_t pieces = begins.size(); pieces-- > 0 && end > 0;) {
    if (begins[pieces][end] == end) continue;
    cuts.push_back(end);
    end = begins[pieces][end];
  }
  std::ranges::reverse(cuts);
  return cuts;
}

}  // namespace lockstep::parallel
