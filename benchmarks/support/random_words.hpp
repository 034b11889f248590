#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

/// @file
/// Data without a pattern.

namespace lockstep::benchmark {

/// Random bytes: zeros would be kinder to the machine than data is.
inline std::vector<std::uint64_t> random_words(std::size_t bytes) {
  std::vector<std::uint64_t> words(bytes / 8);
  std::mt19937_64 engine(1);
  for (auto& word : words) word = engine();
  return words;
}

}  // namespace lockstep::benchmark
