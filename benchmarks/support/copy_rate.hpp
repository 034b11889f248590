#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "lockstep/core/parallel.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/loader_epoch.hpp"
#include "support/random_words.hpp"

/// @file
/// The ceiling of work that only moves bytes: a copy under the same circumstances.

namespace lockstep::benchmark {

/// Copies pieces out of a source larger than a cache into memory from the pool.
class Copier {
 public:
  /// Seconds of `count` copies that read and write `moved` bytes each, so of moved / 2 bytes.
  double seconds(std::int64_t count, double moved, int threads) {
    const auto bytes = static_cast<std::int64_t>(moved / 2);
    set_num_threads(threads);
    const Stopwatch time;
    for (std::int64_t i = 0; i < count; ++i) {
      if (position_ + bytes > bytes_of_source) position_ = 0;
      copy(bytes);
      position_ += bytes;
    }
    return time.seconds();
  }

 private:
  void copy(std::int64_t bytes) const {
    const Tensor piece = empty({bytes}, {.dtype = DType::u8});
    auto* to = piece.data<std::uint8_t>();
    const auto* from = reinterpret_cast<const std::uint8_t*>(source_.data()) + position_;
    parallel_for(bytes, std::int64_t{16} << 10, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
    });
  }

  static constexpr std::int64_t bytes_of_source = std::int64_t{256} << 20;
  std::vector<std::uint64_t> source_ = random_words(bytes_of_source);
  std::int64_t position_ = 0;
};

}  // namespace lockstep::benchmark
