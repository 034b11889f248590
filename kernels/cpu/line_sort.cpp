#include "cpu/line_sort.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "cpu/tiles.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::cpu_kernels {
namespace {

constexpr std::int64_t few = 24;     ///< entries that insertion sorts faster than digits do
constexpr int most_digit_bits = 11;  ///< of a digit: its counts stay in the first cache

/// The bits of the digit by which so many entries are split: into groups that fit the first cache,
/// and those into few entries each.
int digit_bits(std::int64_t n) {
  return n > 8192 ? 8
                  : std::min<int>(std::bit_width(static_cast<std::uint64_t>(n)), most_digit_bits);
}

void insert_each(std::uint64_t* entries, std::int64_t n) {
  for (std::int64_t i = 1; i < n; ++i) {
    const std::uint64_t entry = entries[i];
    std::int64_t j = i;
    for (; j > 0 && entries[j - 1] > entry; --j) entries[j] = entries[j - 1];
    entries[j] = entry;
  }
}

}  // namespace

/// Entries that agree in all bits from `high` on, and where they come to stand.
struct LineSort::Group {
  std::uint64_t *entries, *spare;
  std::int64_t n, rank;
  int high;
  int left_out;  ///< lowest bits of keys that the entries have no room for
};

std::uint64_t* LineSort::keys(std::int64_t n) {
  LOCKSTEP_CHECK(n <= UINT32_MAX, Unsupported, "argsort: a line of ", n,
                 " elements; it must have less than 2^32");
  length_ = n;
  return keys_ = memory_.get<std::uint64_t>(3 * static_cast<std::size_t>(n));
}

void LineSort::write_order(std::int64_t* out, std::int64_t stride) {
  if (length_ == 0) return;
  out_ = out;
  stride_ = stride;
  std::uint64_t least = keys_[0], largest = least;
  for (std::int64_t i = 1; i < length_; ++i) {
    least = std::min(least, keys_[i]);
    largest = std::max(largest, keys_[i]);
  }
  least_ = least;
  position_bits_ = std::bit_width(static_cast<std::uint64_t>(length_ - 1));
  const int key_bits = std::bit_width(largest - least);
  const int left_out = std::max(0, key_bits + position_bits_ - 64);
  // Keys that entries hold whole are not looked up again.
  std::uint64_t* const entries = left_out ? keys_ + length_ : keys_;
  for (std::int64_t i = 0; i < length_; ++i)
    entries[i] = (keys_[i] - least) >> left_out << position_bits_ | static_cast<std::uint64_t>(i);
  sort({entries, keys_ + 2 * length_, length_, 0, key_bits - left_out + position_bits_, left_out});
}

void LineSort::sort(const Group& group) {
  if (group.n <= few || group.high == position_bits_)
    finish(group);
  else
    split(group);
}

void LineSort::split(const Group& group) {
  const auto [entries, spare, n, rank, high, left_out] = group;
  const int bits = std::min(high - position_bits_, digit_bits(n));
  const int low = high - bits;
  const std::size_t digits = std::size_t{1} << bits;
  const auto digit = [&](std::uint64_t entry) { return entry >> low & (digits - 1); };
  std::array<std::uint32_t, (1 << most_digit_bits) + 1> place;
  std::fill_n(place.begin(), digits + 1, 0);
  for (std::int64_t i = 0; i < n; ++i) ++place[digit(entries[i]) + 1];
  for (std::size_t d = 1; d < digits; ++d) place[d] += place[d - 1];
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint64_t* const to = spare + place[digit(entries[i])]++;
    __builtin_prefetch(to + 8, 1);  // the line that this digit goes on in
    *to = entries[i];
  }
  // Each digit's place has moved to where the next one's was. Neighbours of few entries are sorted
  // together: insertion moves none of them beyond its digit.
  const auto sort_digits = [&](std::int64_t first, std::int64_t last) {
    std::int64_t begin = first > 0 ? place[static_cast<std::size_t>(first) - 1] : 0, large = begin;
    const auto part = [&](std::int64_t from, std::int64_t to) -> Group {
      return {spare + from, entries + from, to - from, rank + from, low, left_out};
    };
    for (std::int64_t d = first; d < last; ++d) {
      const std::int64_t end = place[static_cast<std::size_t>(d)];
      if (end - large > few) {
        finish(part(begin, large));
        sort(part(large, end));
        begin = end;
      }
      large = end;
    }
    finish(part(begin, large));
  };
  const auto grain = static_cast<std::int64_t>(digits) * parallel_grain / n;
  parallel_for(static_cast<std::int64_t>(digits), std::max<std::int64_t>(1, grain), sort_digits);
}

void LineSort::finish(const Group& group) {
  if (group.high > position_bits_) insert_each(group.entries, group.n);
  const std::uint64_t* const entries = group.entries;
  const std::uint64_t positions = (std::uint64_t{1} << position_bits_) - 1;
  const std::int64_t n = group.n, stride = stride_;
  std::int64_t* const out = out_ + group.rank * stride;
  for (std::int64_t i = 0; i < n; ++i)
    out[i * stride] = static_cast<std::int64_t>(entries[i] & positions);
  if (group.left_out > 0) refine(group);
}

/// Sorts anew, by what their keys have besides, those that agree in all that entries hold of keys.
void LineSort::refine(const Group& group) {
  const auto [entries, spare, n, rank, high, left_out] = group;
  const std::uint64_t positions = (std::uint64_t{1} << position_bits_) - 1;
  const std::uint64_t rest = (std::uint64_t{1} << left_out) - 1;
  for (std::int64_t begin = 0, end = 1; begin < n; begin = end++) {
    while (end < n && (entries[begin] ^ entries[end]) >> position_bits_ == 0) ++end;
    if (end - begin == 1) continue;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t at = entries[i] & positions;
      entries[i] = ((keys_[at] - least_) & rest) << position_bits_ | at;
    }
    sort({entries + begin, spare + begin, end - begin, rank + begin, left_out + position_bits_, 0});
  }
}

}  // namespace lockstep::cpu_kernels
