#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/parallel/bucket_plan.hpp"
#include "lockstep/parallel/message_cost.hpp"

/// @file
/// Buckets from what was measured: when gradients are ready, and what messages cost.

namespace lockstep::parallel {

/// Who decides where buckets end.
enum class BucketPlanning : unsigned char {
  pytorch,   ///< sizes alone: BucketCaps
  measured,  ///< times of the first steps, so that the last reduction ends as early as it can
};

/// What was measured of a backward; seconds from its start.
struct BackwardTimes {
  std::vector<double> ready;  ///< of each parameter's gradient, on the rank that has it last
  double end = 0;             ///< of the computation
  MessageCost cost;
};

/// When a bucket's reduction runs, in seconds from the start of backward.
struct BucketSpan {
  double ready = 0;  ///< its last gradient
  double start = 0;
  double end = 0;
};

/// When buckets are reduced, one after the other: each once it is complete and the one before is
/// done.
std::vector<BucketSpan> predict(std::span<const Bucket> buckets, const BackwardTimes& times);

/// The same for a plan that no other hides more than: each gradient leaves once it is ready and the
/// ones before it are through, and messages cost their bytes alone.
/// @param order as `order_by_times` gives it.
std::vector<BucketSpan> predict_at_best(std::span<const ParameterInfo> parameters,
                                        std::span<const std::size_t> order,
                                        const BackwardTimes& times);

/// Share of the reductions that runs before the computation ends, 0 to 1; 1 if there are none.
double hidden_share(std::span<const BucketSpan> spans, double computation_end);

/// Parameters in the order of their measured times; where these are equal, in that of `order`.
std::vector<std::size_t> order_by_times(std::span<const std::size_t> order,
                                        const BackwardTimes& times);

/// Cuts an order of parameters so that the last reduction ends as early as it can: by dynamic
/// programming over the prefixes of the order, of which each ends as early as it can if one before
/// it does. Of all cuts that end so early, or `tolerance` seconds later, one with the fewest
/// pieces. Parameters of one piece make a bucket for each dtype among them. In the worst case it
/// takes the square of the number of parameters, times that of pieces.
/// @param order as `order_by_times` gives it. @return where each piece ends; the last is the
/// number of parameters.
std::vector<std::size_t> cut_for_earliest_end(std::span<const ParameterInfo> parameters,
                                              std::span<const std::size_t> order,
                                              const BackwardTimes& times, double tolerance = 0);

}  // namespace lockstep::parallel
