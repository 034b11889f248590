#include "lockstep/data/permutation.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/philox.hpp"

namespace lockstep::data {
namespace {

// Ops such as dropout draw from Philox sequences of the plain seed: shuffles take another key.
constexpr std::uint64_t shuffle_key = 0x64617461'6F726472u;

// Computed permutations take a third one.
constexpr std::uint64_t feistel_key = 0x66656973'74656C00u;

std::uint64_t join(std::uint32_t high, std::uint32_t low) {
  return std::uint64_t{high} << 32 | low;
}

struct Product {
  std::uint64_t high, low;
};

Product multiply(std::uint64_t a, std::uint64_t b) {
#ifdef __SIZEOF_INT128__
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a} * b;
  return {static_cast<std::uint64_t>(product >> 64), static_cast<std::uint64_t>(product)};
#else
  const std::uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
  const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  const std::uint64_t cross = a0 * b1 + (middle & 0xFFFFFFFFu);
  return {a1 * b1 + (middle >> 32) + (cross >> 32), a * b};
#endif
}

// Random numbers below a bound.
class RandomNumbers {
 public:
  explicit RandomNumbers(PhiloxState state) : state_(state) {}

  // Uniform without bias: Lemire, "Fast random integer generation in an interval" (2019).
  std::uint64_t below(std::uint64_t bound) {
    Product product = multiply(next(), bound);
    if (product.low < bound) {
      const std::uint64_t threshold = (0 - bound) % bound;
      while (product.low < threshold) product = multiply(next(), bound);
    }
    return product.high;
  }

 private:
  std::uint64_t next() {
    if (used_ == 4) {
      block_ = state_.block(counter_++);
      used_ = 0;
    }
    used_ += 2;
    return join(block_.word[used_ - 1], block_.word[used_ - 2]);
  }

  PhiloxState state_;
  std::uint64_t counter_ = 0;
  PhiloxBlock block_{};
  unsigned used_ = 4;
};

std::uint64_t checked_count(std::int64_t count) {
  LOCKSTEP_CHECK(count >= 0, InvalidArgument, "there is no permutation of ", count, " numbers");
  return static_cast<std::uint64_t>(count);
}

constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15u;  // 2^64 times its reciprocal, odd

// The network's function of one half: any will do that mixes its bits and depends on the key.
std::uint64_t mix(std::uint64_t half, std::uint64_t added, std::uint64_t factor) {
  const Product product = multiply((half + 1) * golden_ratio ^ added, factor);
  return product.high ^ product.low;
}

}  // namespace

Permutation::Permutation(std::int64_t count, std::uint64_t seed, std::uint64_t epoch)
    : count_(checked_count(count)) {
  // Networks of fewer bits are far from drawing all orders equally often.
  const int bits = std::max<int>(8, std::bit_width(std::max<std::uint64_t>(count_, 1) - 1));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  const PhiloxState numbers{seed ^ feistel_key, epoch};
  for (int round = 0; round < rounds; ++round) {
    const PhiloxBlock block = numbers.block(static_cast<std::uint64_t>(round));
    keys_[static_cast<std::size_t>(round)] = {.added = join(block.word[0], block.word[1]),
                                              .factor = join(block.word[2], block.word[3]) | 1};
  }
}

std::int64_t Permutation::operator()(std::int64_t position) const {
  LOCKSTEP_CHECK(position >= 0 && position < size(), InvalidArgument, "position ", position,
                 " is outside a permutation of ", size(), " numbers");
  const std::uint64_t low_mask = (std::uint64_t{1} << low_bits_) - 1;
  const std::uint64_t high_mask = (std::uint64_t{1} << high_bits_) - 1;
  auto value = static_cast<std::uint64_t>(position);
  do {
    std::uint64_t low = value & low_mask, high = value >> low_bits_;
    for (std::size_t round = 0; round < rounds; round += 2) {
      high ^= mix(low, keys_[round].added, keys_[round].factor) & high_mask;
      low ^= mix(high, keys_[round + 1].added, keys_[round + 1].factor) & low_mask;
    }
    value = high << low_bits_ | low;
  } while (value >= count_);
  return static_cast<std::int64_t>(value);
}

std::vector<std::int64_t> random_permutation(std::int64_t count, std::uint64_t seed,
                                             std::uint64_t epoch) {
  std::vector<std::int64_t> order(checked_count(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  RandomNumbers numbers({seed ^ shuffle_key, epoch});
  for (std::size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[numbers.below(left)]);
  return order;
}

}  // namespace lockstep::data
