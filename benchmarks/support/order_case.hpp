#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/permutation.hpp"
#include "lockstep/data/sampler.hpp"
#include "support/measure.hpp"
#include "support/report.hpp"

/// @file
/// What the order of a billion samples costs.

namespace lockstep::benchmark {

/// Batches are the numbers of their samples: what is left is the loader's own time.
struct NumberedSamples {
  std::int64_t count;
  std::int64_t size() const { return count; }
  std::vector<std::int64_t> fetch(std::span<const std::int64_t> indices) const {
    return {indices.begin(), indices.end()};
  }
};

/// Nanoseconds an index, one after the other and in batches of a sampler; and milliseconds from
/// nothing to the first batch of a sampler and a loader that go on in the middle of an epoch (and,
/// with workers, to their end).
inline void measure_order(const Report& report) {
  constexpr std::int64_t count = 1'000'000'000, batch = 64, at_once = 1024;
  const data::Permutation permutation(count, 5, 3);
  std::int64_t position = 0, sum = 0;
  const Timing one = measure([&] {
    sum += permutation(position);
    position = (position + 7919) % count;
  });
  const data::RandomSampler sampler(count, 5);
  const auto of_batches = [&](std::int64_t size) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(size));
    std::int64_t first = 0;
    const Timing timing = measure([&] {
      sampler.indices(3, first, indices);
      first = (first + size) % (count - size);
      sum += indices.back();
    });
    return timing.median / static_cast<double>(size) * 1e9;
  };
  const auto resume = [&](int workers) {
    return measure([&] {
      data::DataLoader loader(NumberedSamples{count}, data::RandomSampler(count, 5),
                              {.batch_size = batch, .num_workers = workers});
      loader.load_state({.epoch = 3, .samples = count / 3 * 2});
      sum += (*loader.begin()).front();
    });
  };
  const Timing alone = resume(0), with_workers = resume(2);
  report.add({{"case", "order"},
              {"samples", count},
              {"permutation_ns", one.median * 1e9},
              {"batch_64_ns", of_batches(batch)},
              {"batch_1024_ns", of_batches(at_once)},
              {"resume_ms_min", alone.minimum * 1e3},
              {"resume_ms_median", alone.median * 1e3},
              {"resume_2_workers_ms_min", with_workers.minimum * 1e3},
              {"resume_2_workers_ms_median", with_workers.median * 1e3},
              {"sum", sum}});  // so that none of it is left out
}

}  // namespace lockstep::benchmark
