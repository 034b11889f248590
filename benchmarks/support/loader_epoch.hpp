#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/image_dataset.hpp"
#include "lockstep/data/token_dataset.hpp"

/// @file
/// Reading a loader's batches with a stopwatch in hand.

namespace lockstep::benchmark {

/// What is done with the batches of an epoch.
struct Consumer {
  /// Seconds that a core is kept busy with each batch, as by a training step.
  double step_seconds = 0;
  /// The epoch is left after this many batches.
  std::int64_t batches = std::numeric_limits<std::int64_t>::max();
  /// Whether every element is read into the checksum.
  bool checks = false;
};

/// What came of it.
struct Epoch {
  double seconds = 0;
  /// Part of `seconds` in which the consumer waited for a batch, the first one left out.
  double waited = 0;
  /// Of values and order.
  double checksum = 0;
};

/// Every value times a weight that follows from its place.
template <class T>
double checksum(const Tensor& values) {
  double sum = 0;
  for (std::int64_t i = 0; i < values.numel(); ++i)
    sum += static_cast<double>(values.data<T>()[i]) * static_cast<double>(1 + i % 251);
  return sum;
}
inline double checksum(const data::TokenBatch& batch) {
  return checksum<std::int64_t>(batch.tokens) + checksum<std::int64_t>(batch.targets);
}
inline double checksum(const data::ImageBatch& batch) {
  return checksum<float>(batch.images) + checksum<std::int64_t>(batch.labels);
}

/// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Reads the loader's first epoch, again whenever it is called.
template <class Loader>
Epoch run_epoch(Loader& loader, const Consumer& consumer) {
  loader.load_state({});
  Epoch result;
  std::int64_t count = 0;
  const Stopwatch whole;
  Stopwatch wait;
  for (const auto& batch : loader) {
    if (count > 0) result.waited += wait.seconds();
    if (consumer.checks) result.checksum += static_cast<double>(1 + count % 97) * checksum(batch);
    for (const Stopwatch step; step.seconds() < consumer.step_seconds;) continue;
    if (++count == consumer.batches) break;
    wait = {};
  }
  result.seconds = whole.seconds();
  return result;
}

}  // namespace lockstep::benchmark
