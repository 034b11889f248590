#include "lockstep/parallel/trace.hpp"

#include <algorithm>

#include "parallel/trace_seconds.hpp"

namespace lockstep::parallel {

double ReducerTrace::communication_seconds() const {
  // Collectives of one communicator run one after the other.
  double total = 0;
  for (const BucketTrace& bucket : buckets) total += seconds(bucket.finished - bucket.started);
  return total;
}

double ReducerTrace::hidden_share() const {
  const double total = communication_seconds();
  if (total <= 0) return 1;
  double hidden = 0;
  for (const BucketTrace& bucket : buckets)
    if (bucket.started < backward_end)
      hidden += seconds(std::min(bucket.finished, backward_end) - bucket.started);
  return hidden / total;
}

std::ostream& operator<<(std::ostream& out, const ReducerTrace& trace) {
  const auto us = [&](TraceClock::time_point time) {
    return std::chrono::duration<double, std::micro>(time - trace.first_gradient).count();
  };
  out << "{\"backward_end_us\": " << us(trace.backward_end)
      << ", \"synchronized_us\": " << us(trace.synchronized)
      << ", \"hidden_share\": " << trace.hidden_share() << ", \"buckets\": [";
  for (std::size_t i = 0; i < trace.buckets.size(); ++i) {
    const BucketTrace& bucket = trace.buckets[i];
    out << (i ? ", " : "") << "{\"bytes\": " << bucket.bytes
        << ", \"launched_us\": " << us(bucket.launched)
        << ", \"started_us\": " << us(bucket.started)
        << ", \"finished_us\": " << us(bucket.finished) << "}";
  }
  return out << "]}";
}

}  // namespace lockstep::parallel
