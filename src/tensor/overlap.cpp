#include "tensor/overlap.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace lockstep {
namespace {

/// One term of a sum of steps: taken 0 to `most` times.
struct Step {
  std::int64_t bytes, most;
};

/// The sums that two arrays' steps can make, largest steps first, equal ones joined.
class Steps {
 public:
  void add(const ArrayView& view) {
    const auto size = static_cast<std::int64_t>(size_of(view.dtype));
    for (int d = 0; d < view.rank(); ++d)
      if (view.shape[d] > 1 && view.strides[d] > 0)
        add({view.strides[d] * size, view.shape[d] - 1});
    add({1, size - 1});  // the bytes of an element
  }
  std::span<const Step> sorted() {
    std::ranges::sort(steps_.begin(), steps_.begin() + count_, std::greater{}, &Step::bytes);
    return {steps_.data(), static_cast<std::size_t>(count_)};
  }

 private:
  void add(Step step) {
    if (step.most == 0) return;
    const auto end = steps_.begin() + count_;
    const auto same =
        std::find_if(steps_.begin(), end, [&](const Step& s) { return s.bytes == step.bytes; });
    if (same != end)
      same->most += step.most;
    else
      steps_[static_cast<std::size_t>(count_++)] = step;
  }

  std::array<Step, 2 * max_rank + 2> steps_{};
  std::ptrdiff_t count_ = 0;
};

/// True if some sum of the steps is `distance`. Depth first, and given up after `budget` visits:
/// nested strides leave one or two choices a level.
bool reaches(std::int64_t distance, std::span<const Step> steps, int& budget) {
  if (distance == 0) return true;
  if (steps.empty() || --budget < 0) return false;
  const Step step = steps.front();
  const auto rest = steps.subspan(1);
  std::int64_t left = 0;  // what the smaller steps can make up
  for (const Step& each : rest) left += each.bytes * each.most;
  const std::int64_t most = std::min(step.most, distance / step.bytes);
  const std::int64_t least = distance > left ? (distance - left + step.bytes - 1) / step.bytes : 0;
  for (std::int64_t n = most; n >= least && budget >= 0; --n)
    if (reaches(distance - n * step.bytes, rest, budget)) return true;
  return false;
}

/// Bytes from an array's first element to the end of its last.
std::int64_t span_of(const ArrayView& view) {
  std::int64_t last = 0;
  for (int d = 0; d < view.rank(); ++d) last += (view.shape[d] - 1) * view.strides[d];
  return (last + 1) * static_cast<std::int64_t>(size_of(view.dtype));
}

bool is_same_array(const ArrayView& a, const ArrayView& b) {
  bool same = a.data == b.data && a.dtype == b.dtype;
  for (int d = 0; same && d < a.rank(); ++d) same = a.shape[d] == 1 || a.strides[d] == b.strides[d];
  return same;
}

}  // namespace

bool has_repeated_elements(const ArrayView& view) {
  bool repeats = false;
  for (int d = 0; d < view.rank(); ++d) {
    if (view.shape[d] == 0) return false;
    repeats |= view.shape[d] > 1 && view.strides[d] == 0;
  }
  return repeats;
}

bool is_overwritten(const ArrayView& from, const ArrayView& to) {
  const auto distance = from.as<std::byte>() - to.as<std::byte>();
  if (distance >= span_of(to) || -distance >= span_of(from)) return false;
  if (from.numel() == 0 || is_same_array(from, to)) return false;
  // to + sum of its steps = from + sum of its steps. Counted down from the last element, the steps
  // of `from` change sides: all terms are positive then.
  Steps steps;
  steps.add(to);
  steps.add(from);
  int budget = 10000;
  return reaches(distance + span_of(from) - 1, steps.sorted(), budget);
}

}  // namespace lockstep
