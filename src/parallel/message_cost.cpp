#include "lockstep/parallel/message_cost.hpp"

#include <algorithm>

namespace lockstep::parallel {

MessageCost fit_message_cost(std::span<const MessageTime> times) {
  double n = 0, x = 0, xx = 0, t = 0, xt = 0;  // sums, each term over the square of its time
  for (const auto& [bytes, seconds] : times) {
    if (seconds <= 0) continue;
    const double weight = 1 / (seconds * seconds);
    n += weight;
    x += weight * bytes;
    xx += weight * bytes * bytes;
    t += weight * seconds;
    xt += weight * bytes * seconds;
  }
  if (n == 0) return {};
  if (xx == 0) return {.latency = t / n};
  const MessageCost only_bandwidth{.seconds_per_byte = xt / xx};
  const double determinant = n * xx - x * x;
  if (determinant <= 1e-9 * n * xx) return only_bandwidth;
  const double latency = (t * xx - x * xt) / determinant;
  const double slope = (n * xt - x * t) / determinant;
  if (latency < 0) return only_bandwidth;
  if (slope < 0) return {.latency = t / n};
  return {.latency = latency, .seconds_per_byte = slope};
}

}  // namespace lockstep::parallel
