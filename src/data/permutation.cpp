#include "lockstep/data/permutation.hpp"

#include <numeric>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/philox.hpp"

namespace lockstep::data {
namespace {

// Ops such as dropout draw from Philox sequences of the plain seed: shuffles take another key.
constexpr std::uint64_t shuffle_key = 0x64617461'6F726472u;

// Random numbers below a bound.
class Numbers {
 public:
  explicit Numbers(PhiloxState state) : state_(state) {}

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
  struct Product {
    std::uint64_t high, low;
  };
  static Product multiply(std::uint64_t a, std::uint64_t b) {
    const std::uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
    const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    const std::uint64_t cross = a0 * b1 + (middle & 0xFFFFFFFFu);
    return {a1 * b1 + (middle >> 32) + (cross >> 32), a * b};
  }
  std::uint64_t next() {
    if (used_ == 4) {
      block_ = state_.block(counter_++);
      used_ = 0;
    }
    const std::uint64_t low = block_.word[used_], high = block_.word[used_ + 1];
    used_ += 2;
    return high << 32 | low;
  }

  PhiloxState state_;
  std::uint64_t counter_ = 0;
  PhiloxBlock block_{};
  unsigned used_ = 4;
};

}  // namespace

std::vector<std::int64_t> random_permutation(std::int64_t count, std::uint64_t seed,
                                             std::uint64_t epoch) {
  LOCKSTEP_CHECK(count >= 0, InvalidArgument, "there is no permutation of ", count, " numbers");
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  Numbers numbers({seed ^ shuffle_key, epoch});
  for (std::size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[numbers.below(left)]);
  return order;
}

}  // namespace lockstep::data
